"""The operational laws in a report: visits, forced flow, Little, utilisation and the bottleneck, from planted times."""

from pathlib import Path

import pytest
from msgspec import convert

from behaviour_samples import statistics
from crescendo.model.experiment_file import experiment_from
from crescendo.model.operational_laws import bottleneck, forced_flow, in_system, utilization
from crescendo.record.tables import HopRow, SampleStatistics, SpanRow
from crescendo.report.page import render_report
from crescendo.report.sections.station_laws import hop_stations, tier_stations
from inspector_samples import write_readings
from report_samples import SAMPLES, write_sample


def _span(action: str, count: int, mean_ns: float) -> SpanRow:
    return SpanRow(
        "measure", action, None, convert(statistics(mean_ns, count), SampleStatistics), count * mean_ns, None
    )


def test_tiers_become_stations_whose_laws_agree_with_the_counts() -> None:
    """Ten seconds: 1,000 requests of two kinds; every second one of 600 goes to the database twice."""
    spans = [
        _span("Send", 600, 9e6), _span("Send/database", 900, 4e6), _span("Send/queue wait", 600, 1e6),
        _span("Send/network", 600, 2e6),
        _span("Take", 400, 5e6), _span("Take/database", 400, 3e6), _span("Take/wait for a message", 400, 2e6),
    ]  # fmt: skip
    mlmq = experiment_from({"name": "x", "system": {"kind": "mlmq", "settings": {"brokers": 2, "connections": 3}}})
    found = {station.name: station for station in tier_stations(spans, mlmq)}
    assert set(found) == {"queue wait", "database", "network"}
    database, throughput = found["database"], 100.0
    assert (database.visits, database.servers) == (1.3, 6)
    assert forced_flow(throughput, database.visits) == pytest.approx((900 + 400) / 10)
    busy = (900 * 4e-3 + 400 * 3e-3) / 10  # seconds of work per second
    assert in_system(throughput, database.demand.seconds) == pytest.approx(busy)
    assert utilization(throughput, database.demand.seconds, 6) == pytest.approx(busy / 6)
    assert found["queue wait"].demand.is_delay
    assert bottleneck({name: station.demand for name, station in found.items()}) == "database"
    assert [station.servers for station in tier_stations(spans, None)] == [None] * 3


def test_steps_of_a_network_are_visited_by_the_messages_of_their_routes() -> None:
    def hop(route: str, position: int, start: str, end: str, messages: int, mean_ns: float) -> HopRow:
        return HopRow(route, position, start, end, messages, mean_ns, None, None, None, 0)

    rows = [hop("a", 0, "sender", "a", 30, 1e6), hop("a", 1, "a", "a", 30, 2e6), hop("a-b", 0, "sender", "a", 10, 3e6),
            hop("a-b", 1, "a", "a", 10, 6e6), hop("a-b", 2, "a", "b", 10, 1e6)]  # fmt: skip
    found = {station.name: (station.visits, station.seconds) for station in hop_stations(rows)}
    assert found == {"sender → a": (1.0, 1.5e-3), "a": (1.0, 3e-3), "a → b": (0.25, 1e-3)}


def test_a_report_names_the_bottleneck_when_the_system_was_watched(tmp_path: Path) -> None:
    run = write_sample(tmp_path / "run", SAMPLES["passing"])
    assert 'id="laws"' not in render_report(run)
    page = render_report(write_readings(run))
    assert '<section id="laws"' in page
    assert "The bottleneck is processor (inspector-process)" in page
