"""Is every message accounted for when a broker is killed and started again in the middle of a run?"""

import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing

import pytest

from crescendo.model.payload import PayloadSize
from crescendo.model.protocols import protocol_of
from crescendo.model.workload import Group
from crescendo.processes.die_with_parent import die_with_parent
from crescendo.systems.instance import START_TIMEOUT_S, RunningInstance, start
from crescendo.systems.registry import system_of
from engine_threads import Load, until

pytestmark = pytest.mark.timeout(300)  # three brokers start twice

RATE, COUNT = 250.0, 2000
# RabbitMQ 3.10 declares queues for AMQP 1.0 that do not survive a restart.
PROTOCOLS_OF = {
    "rabbitmq": ["amqp091", "stomp", "mqtt"],
    "artemis": ["stomp", "amqp10", "openwire", "core"],
    "activemq": ["openwire"],
}
MEETINGS = [(kind, protocol) for kind, protocols in PROTOCOLS_OF.items() for protocol in protocols]


def group_of(protocol: str) -> Group:
    address = f"queue://failover-{uuid.uuid4().hex}?durable=yes"
    if protocol == "mqtt":  # its equivalent of a durable queue is a persistent session
        address = f"topic://failover-{uuid.uuid4().hex}?subscription={uuid.uuid4().hex}"
    return Group(address=address, failover=[], protocol=protocol, rate=RATE, size=PayloadSize.fixed(64))


@pytest.fixture(scope="module")
def killable_brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, RunningInstance]]:
    with ExitStack() as stack:
        instances = {}
        for kind in PROTOCOLS_OF:
            directory = tmp_path_factory.mktemp(kind) / "instance"
            instances[kind] = start(system_of(kind), {}, directory=directory, on_fork=die_with_parent(), waits=False)
            stack.callback(instances[kind].stop)
        for instance in instances.values():
            instance.await_service(START_TIMEOUT_S)
        yield instances


@pytest.fixture(scope="module")
def survivors(killable_brokers: dict[str, RunningInstance]) -> dict[tuple[str, str], Load]:
    """The loads on all brokers at once, each of which is killed once in the middle; waiting for one costs no less."""
    with ExitStack() as stack:
        # Entered first, so that it ends last: brokers die with the thread that started them.
        pool = stack.enter_context(ThreadPoolExecutor(len(killable_brokers)))
        loads = {}
        for kind, protocol in MEETINGS:
            url = killable_brokers[kind].endpoints[protocol_of(protocol).endpoint]
            load = Load(url, group_of(protocol), COUNT, redialling=True)
            loads[kind, protocol] = stack.enter_context(closing(load))
        for load in loads.values():
            load.start()
        unharmed = dict(killable_brokers)

        def crash_what_is_in_the_middle() -> bool:
            """Before the first load could finish: on a busy machine one protocol may be far behind another."""
            for kind in list(unharmed):
                settled = [len(loads[kind, protocol].rows.settled) for protocol in PROTOCOLS_OF[kind]]
                if min(settled) > RATE or max(settled) > COUNT // 2:
                    unharmed.pop(kind).crash()
            return not unharmed

        until(crash_what_is_in_the_middle)
        list(pool.map(lambda broker: broker.restart(on_fork=die_with_parent()), killable_brokers.values()))
        for (kind, protocol), load in loads.items():
            load.await_sent()
            assert load.rows.settled == set(range(COUNT)), f"{kind}, {protocol}: everything was acknowledged in the end"
        until(lambda: all(len(set(load.rows.received)) == COUNT for load in loads.values()))
    return loads


@pytest.mark.parametrize(("kind", "protocol"), MEETINGS)
def test_durable_and_acknowledged_messages_survive_a_killed_broker(
    survivors: dict[tuple[str, str], Load], kind: str, protocol: str
) -> None:
    load = survivors[kind, protocol]
    assert set(load.rows.received) == set(range(COUNT)), "durable and acknowledged, none is lost"
    for kinds in (load.sending.kinds, load.receiving.kinds):
        assert kinds.count("disconnect") == kinds.count("reconnect") >= 1
    firsts = [seq for seq, attempt in load.rows.sent if attempt == 1]
    assert firsts == list(range(COUNT)), "the first attempt of each message, once and in order"
    again = [seq for seq, attempt in load.rows.sent if attempt > 1]
    unsettled = sum(detail["unsettled"] for kind, detail in load.sending.events if kind == "disconnect")
    assert len(again) == unsettled
