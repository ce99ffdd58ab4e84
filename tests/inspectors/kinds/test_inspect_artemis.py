"""Artemis, compared with what a Proton client did and with /proc."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from crescendo.inspectors.base import InspectionTarget
from crescendo.inspectors.kinds.artemis import ArtemisInspector
from crescendo.model.errors import PeerError
from crescendo.systems.base import Instance
from inspecting import inspect_until, values_of
from proton_traffic import connected, consume, send

SENT, TAKEN = 7, 3


@pytest.fixture
def inspector(artemis: Instance) -> Iterator[ArtemisInspector]:
    with closing(ArtemisInspector(InspectionTarget(artemis.endpoints))) as inspector:
        yield inspector


def test_a_queue_counts_what_a_client_sent_accepted_and_left(artemis: Instance, inspector: ArtemisInspector) -> None:
    with connected(artemis.url) as connection:
        send(connection, "watched", SENT)
        receiver = consume(connection, "watched", TAKEN)
        queue = "queue/watched"
        expected = {
            (queue, "MessagesAdded"): SENT,
            (queue, "MessageCount"): SENT - TAKEN,
            (queue, "MessagesAcknowledged"): TAKEN,
            (queue, "MessagesExpired"): 0,
            (queue, "ConsumerCount"): 1,
            ("broker", "ConnectionCount"): 1,
        }
        inspection = inspect_until(inspector, expected)
        assert inspection.texts[queue, "RoutingType"] == "ANYCAST"
        receiver.close()
        inspect_until(inspector, {(queue, "ConsumerCount"): 0})


def test_every_column_of_the_broker_inspector_is_present(artemis: Instance, inspector: ArtemisInspector) -> None:
    values = values_of(inspector.inspect())
    for area in ("heap", "non-heap", "eden", "survivor", "tenured", "metaspace"):
        for column in ("init", "committed", "max", "used"):
            assert (f"memory/{area}", column) in values
    for column in (
        "SystemLoadAverage", "OpenFileDescriptorCount", "FreeFileDescriptorCount", "FreePhysicalMemorySize",
        "FreeSwapSpaceSize", "CommittedVirtualMemorySize",
    ):  # fmt: skip
        assert ("os", column) in values
    areas = sum(values[f"memory/{area}", "used"] for area in ("eden", "survivor", "tenured"))
    assert areas == pytest.approx(values["memory/heap", "used"], rel=0.2)
    descriptors = len(list(Path(f"/proc/{artemis.pid}/fd").iterdir()))
    assert abs(values["os", "OpenFileDescriptorCount"] - descriptors) <= 5


def test_a_wrong_password_is_reported_without_the_password(artemis: Instance) -> None:
    url = artemis.endpoints["management"]
    secret = url.split("@")[0].rsplit(":", 1)[1]
    inspector = ArtemisInspector(InspectionTarget({"management": url.replace(secret, "wrong-one")}))
    with pytest.raises(PeerError) as failure:
        inspector.inspect()
    assert "wrong-one" not in str(failure.value)
