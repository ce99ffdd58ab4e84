"""Does a broker that stalls for a second show in the response times, whatever the protocol?"""

import os
import signal
import time
import uuid
from contextlib import ExitStack, closing

import numpy as np
import pytest

from crescendo.model.payload import PayloadSize
from crescendo.model.protocols import protocol_of
from crescendo.model.workload import Group
from crescendo.systems.instance import RunningInstance
from engine_threads import Load, Rows, until

pytestmark = pytest.mark.quiet

RATE, COUNT = 500.0, 3000
DRIVERS = ["amqp10", "amqp091", "stomp", "mqtt"]


def group_of(protocol: str) -> Group:
    kind = "topic" if protocol == "mqtt" else "queue"
    return Group(address=f"{kind}://stall-{uuid.uuid4().hex}", protocol=protocol, rate=RATE, size=PayloadSize.fixed(64))


@pytest.fixture(scope="module")
def stalled(rabbitmq: RunningInstance) -> dict[str, Rows]:
    """What each protocol recorded of one broker that stalled once while all of them were running."""
    with ExitStack() as stack:
        loads = {}
        for protocol in DRIVERS:
            load = Load(rabbitmq.endpoints[protocol_of(protocol).endpoint], group_of(protocol), COUNT)
            loads[protocol] = stack.enter_context(closing(load))
        for load in loads.values():
            load.start()
        # Long before the first of them could finish: on a busy machine one protocol may be far behind another.
        until(lambda: all(len(load.rows.received) > RATE / 2 for load in loads.values()))
        os.kill(rabbitmq.pid, signal.SIGSTOP)
        try:
            time.sleep(1.0)
        finally:
            os.kill(rabbitmq.pid, signal.SIGCONT)
        until(lambda: all(len(load.rows.received) >= COUNT for load in loads.values()))
    return {protocol: load.rows for protocol, load in loads.items()}


@pytest.mark.parametrize("protocol", DRIVERS)
def test_a_stall_of_one_second_shows_in_the_p99(stalled: dict[str, Rows], protocol: str) -> None:
    rows = stalled[protocol]
    assert sorted(rows.received) == list(range(COUNT))
    responses_ns = np.array(rows.response_ns)
    assert np.percentile(responses_ns, 99) >= 0.8e9
    # At a fixed rate the messages due in the stall waited from 1 s down to 0: rate x 0.5 s of them over half a second.
    assert np.count_nonzero(responses_ns > 0.5e9) >= RATE * 0.45
