"""Does a broker that stands still for a second show in the response, whatever the protocol?"""

import os
import signal
import threading
import time
import uuid

import numpy as np
import pytest
from engine_threads import PATIENCE_S, Control, Rows, await_ready, until

from crescendo.load.assignment import Quota
from crescendo.load.protocols import driver_of
from crescendo.load.receiver import Receiver, ReceiverEngine
from crescendo.load.sender import SenderEngine
from crescendo.load.sending import Sender
from crescendo.model.pacer import UNLIMITED, pacer_for
from crescendo.model.payload import Payload
from crescendo.model.workload import PROTOCOLS, Group
from crescendo.systems.instance import RunningInstance

TAG, RATE, COUNT = 99, 500.0, 2000


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_second_of_standstill_is_a_fifth_of_four_seconds_and_in_the_p99(
    rabbitmq: RunningInstance, protocol: str
) -> None:
    url = rabbitmq.endpoints[PROTOCOLS[protocol]]
    kind = "topic" if protocol == "mqtt" else "queue"
    group = Group(address=f"{kind}://stall-{uuid.uuid4().hex}", protocol=protocol, rate=RATE, size=Payload.fixed(64))
    rows, sending, receiving = Rows(), Control(), Control()
    receivers = ReceiverEngine(
        [Receiver(0, group, await_ready(driver_of(protocol, "receiver")(url, group)))], rows, receiving, tag=TAG
    )
    channel = await_ready(driver_of(protocol, "sender")(url, group))
    senders = SenderEngine(
        [Sender(0, group, pacer_for(RATE), Quota(COUNT, UNLIMITED), channel, TAG)], rows, sending, drain_ns=60 * 10**9
    )
    threads = [
        threading.Thread(target=receivers.run),
        threading.Thread(target=senders.run, args=(time.monotonic_ns(),)),
    ]
    for thread in threads:
        thread.start()
    try:
        until(lambda: len(rows.received) > COUNT // 4)
        os.kill(rabbitmq.pid, signal.SIGSTOP)
        try:
            time.sleep(1.0)
        finally:
            os.kill(rabbitmq.pid, signal.SIGCONT)
        until(lambda: len(rows.received) >= COUNT)
    finally:
        sending.stop.set()
        receiving.stop.set()
        for thread in threads:
            thread.join(PATIENCE_S)
        receivers.close()
        senders.close()
    assert sorted(rows.received) == list(range(COUNT))
    responses_ns = np.array(rows.response_ns)
    assert np.percentile(responses_ns, 99) >= 0.8e9
    # At a fixed rate the messages due in the standstill waited from 1 s down to nothing: rate x 0.5 s waited over half.
    assert np.count_nonzero(responses_ns > 0.5e9) >= RATE * 0.45
