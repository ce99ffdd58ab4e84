"""Do statistics of peers keep their keys and values in notes and manifests, and ignore what they do not know?"""

import inspect
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from crescendo.control.notes import Statistics
from crescendo.model.peer_statistics import (
    PeerStatistics,
    agent_statistics,
    client_statistics,
    inspector_statistics,
    receiver_statistics,
    sender_statistics,
)

SAMPLES = Path(__file__).parents[1] / "samples" / "version-0.1"
CONSTRUCTORS = (sender_statistics, receiver_statistics, inspector_statistics, client_statistics, agent_statistics)


@pytest.mark.parametrize("manifest", sorted(SAMPLES.glob("*/manifest.json")), ids=lambda path: path.parent.name)
def test_statistics_of_version_0_1_are_decoded_and_encoded_without_a_difference(manifest: Path) -> None:
    for peer in msgspec.json.decode(manifest.read_bytes())["peers"]:
        decoded = msgspec.convert(peer["statistics"], PeerStatistics)
        assert decoded.reported() == peer["statistics"]
        assert msgspec.json.decode(msgspec.json.encode(decoded)) == peer["statistics"]


@pytest.mark.parametrize("constructor", CONSTRUCTORS)
def test_every_role_reports_what_it_is_given_under_the_same_name(constructor: Callable[..., PeerStatistics]) -> None:
    given = {name: number for number, name in enumerate(inspect.signature(constructor).parameters)}
    written = Statistics(5, values=constructor(**given)).to_payload()["values"]
    assert written == given
    assert all(type(value) is float for value in written.values())
    assert Statistics.from_payload({"t_ns": 5, "values": written}).values == constructor(**given)


def test_every_statistic_is_reported_by_some_role_or_added_at_the_end() -> None:
    reported = {name for constructor in CONSTRUCTORS for name in inspect.signature(constructor).parameters}
    assert set(PeerStatistics.__struct_fields__) == reported | {"messages"}


def test_what_was_not_measured_is_absent_not_zero() -> None:
    unknown = float("nan")
    measured = receiver_statistics(
        second_response_p90_ns=None,
        second_response_max_ns=None,
        busy_share=unknown,
        batch_share=None,
        cpu_seconds=0.0,
        read_delay_max_ns=None,
        stalled_ns=0,
    )
    assert measured.reported() == msgspec.to_builtins(measured) == {"cpu_seconds": 0.0, "stalled_ns": 0.0}
    assert msgspec.json.encode(PeerStatistics()) == b"{}"


def test_keys_of_a_newer_version_are_ignored() -> None:
    decoded = msgspec.json.decode(b'{"busy_share": 0.5, "cache_misses": 7}', type=PeerStatistics)
    assert decoded == PeerStatistics(busy_share=0.5)
