"""Do the newer versions of the brokers start, report their figures, and carry messages of every protocol?"""

import secrets
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from crescendo.inspectors.base import InspectionTarget
from crescendo.inspectors.registry import inspector_of
from crescendo.model.protocols import protocol_of
from crescendo.model.workload import Group
from crescendo.processes.die_with_parent import die_with_parent
from crescendo.systems.instance import RunningInstance, start
from crescendo.systems.registry import system_of
from engine_threads import until
from jms_peers import LedgerRows, jms_receives, jms_sends, we_receive, we_send

pytestmark = pytest.mark.soak  # each of them is fetched first

MANY = 5_000
VERSIONS = (("activemq", "6.1.7"), ("artemis", "2.56.0"))


@pytest.fixture(scope="module", params=VERSIONS, ids=" ".join)
def broker(request: pytest.FixtureRequest, reachable_dir: Path) -> Iterator[RunningInstance]:
    kind, version = request.param
    system = system_of(kind)
    system.install(version, print)
    running = start(system, {}, version=version, directory=reachable_dir / kind, on_fork=die_with_parent())
    yield running
    running.stop()


def skip_without(broker: RunningInstance, protocol: str) -> None:
    if protocol_of(protocol).endpoint not in broker.endpoints:
        pytest.skip(f"{broker.facts['kind']} does not speak {protocol}")


@pytest.mark.parametrize("protocol", ["amqp10", "openwire", "stomp", "mqtt", "core"])
def test_a_newer_version_carries_every_message_of_our_drivers(broker: RunningInstance, protocol: str) -> None:
    skip_without(broker, protocol)
    scheme = "topic" if protocol == "mqtt" else "queue"
    some = Group(address=f"{scheme}://new-{secrets.token_hex(6)}", protocol=protocol, rate=5000.0)
    url, rows = broker.endpoints[protocol_of(protocol).endpoint], LedgerRows()
    with we_receive(url, some, rows), we_send(url, some, MANY, rows) as sending:
        sending.join()
        until(lambda: len(rows.received) >= MANY)
    # docs/systems.md says how Artemis orders messages over MQTT.
    rows.assert_complete(MANY, in_order=(broker.facts["kind"], protocol) != ("artemis", "mqtt"))


@pytest.mark.parametrize("protocol", ["amqp10", "openwire", "core"])
def test_a_newer_version_carries_every_message_of_the_jms_clients(broker: RunningInstance, protocol: str) -> None:
    skip_without(broker, protocol)
    some = Group(address=f"queue://new-{secrets.token_hex(6)}", protocol=protocol, rate=2500.0, client="jms")
    url, rows = broker.endpoints[protocol_of(protocol).endpoint], LedgerRows()
    with jms_receives(url, some, rows), jms_sends(url, some, MANY, rows) as sending:
        sending.join()
        until(lambda: len(rows.received) >= MANY)
    rows.assert_complete(MANY)


def test_a_newer_version_reports_its_figures(broker: RunningInstance) -> None:
    kind = broker.facts["kind"]
    with closing(inspector_of(kind)(InspectionTarget(broker.endpoints, broker.pid))) as inspector:
        found = {reading.metric for reading in inspector.inspect().readings}
    assert found >= {"MessageCount", "MessagesAdded"}
