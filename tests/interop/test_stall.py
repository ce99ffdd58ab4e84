"""Does a broker that stands still for a second show in the response, whatever the protocol?"""

import os
import signal
import time
import uuid
from contextlib import ExitStack, closing

import numpy as np
import pytest

from crescendo.model.payload import PayloadSize
from crescendo.model.workload import PROTOCOLS, Group
from crescendo.systems.instance import RunningInstance
from engine_threads import Load, Rows, until

RATE, COUNT = 500.0, 3000
SPOKEN = ["amqp10", "amqp091", "stomp", "mqtt"]


def group_of(protocol: str) -> Group:
    kind = "topic" if protocol == "mqtt" else "queue"
    return Group(address=f"{kind}://stall-{uuid.uuid4().hex}", protocol=protocol, rate=RATE, size=PayloadSize.fixed(64))


@pytest.fixture(scope="module")
def stalled(rabbitmq: RunningInstance) -> dict[str, Rows]:
    """What each protocol saw of one broker, which stood still once while all of them were at work."""
    with ExitStack() as stack:
        loads = {}
        for protocol in SPOKEN:
            load = Load(rabbitmq.endpoints[PROTOCOLS[protocol]], group_of(protocol), COUNT)
            loads[protocol] = stack.enter_context(closing(load))
        for load in loads.values():
            load.start()
        # Long before the first of them could be done: on a busy machine one protocol may be far behind another.
        until(lambda: all(len(load.rows.received) > RATE / 2 for load in loads.values()))
        os.kill(rabbitmq.pid, signal.SIGSTOP)
        try:
            time.sleep(1.0)
        finally:
            os.kill(rabbitmq.pid, signal.SIGCONT)
        until(lambda: all(len(load.rows.received) >= COUNT for load in loads.values()))
    return {protocol: load.rows for protocol, load in loads.items()}


@pytest.mark.parametrize("protocol", SPOKEN)
def test_a_second_of_standstill_is_a_sixth_of_six_seconds_and_in_the_p99(
    stalled: dict[str, Rows], protocol: str
) -> None:
    rows = stalled[protocol]
    assert sorted(rows.received) == list(range(COUNT))
    responses_ns = np.array(rows.response_ns)
    assert np.percentile(responses_ns, 99) >= 0.8e9
    # At a fixed rate the messages due in the standstill waited from 1 s down to nothing: rate x 0.5 s waited over half.
    assert np.count_nonzero(responses_ns > 0.5e9) >= RATE * 0.45
