"""Metrics of campaigns that are read from tables: jitter, bursts, and messages that were not accepted."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from crescendo.model import metrics
from crescendo.model.campaign import TABLE_STATISTICS, check_campaign_metric, format_metric
from crescendo.record import tables
from crescendo.record.manifest import ConnectionRecord, Manifest, write_manifest
from crescendo.record.published_tables import published_tables
from crescendo.record.run_metrics import TABLE_VALUES, SummarizedEvidence, metric_values
from crescendo.record.summary import Rate
from crescendo.record.table_types import Table

METRICS = ["jitter.max", "jitter.min", "burst.negative", "error.shed.count"]


def write(run_dir: Path, table: Table[object], rows: list[dict[str, object]]) -> None:
    folder = run_dir / "tables" / table.name
    folder.mkdir(parents=True)
    pq.write_table(pa.Table.from_pylist(rows, table.arrow_schema()), folder / "part.parquet")


def test_they_cover_all_receivers_outages_and_seconds(tmp_path: Path) -> None:
    empty = dict.fromkeys(tables.JITTER.column_names, 0)
    write(
        tmp_path,
        tables.JITTER,
        [empty | {"receiver": r, "max_ns": 10 * (r + 1), "min_ns": -r, "count": 5} for r in (0, 1)],
    )
    burst = {"subscription": "q", "start_ns": 0, "receiver": 0, "messages": 9, "inversions": 0, "length_ns": 1}
    write(tmp_path, tables.BURSTS, [burst | {"negative": 7, "max_jitter_ns": 1}, burst | {"negative": 2}])
    error = {"second": 1, "sender": 0, "share": 0.5}
    write(
        tmp_path,
        tables.ERRORS,
        [error | {"outcome": "shed", "messages": 4}, error | {"outcome": "rejected", "messages": 3}],
    )
    assert metric_values(tmp_path, None, METRICS) == {  # type: ignore[arg-type] # no summary is read
        "jitter.max": 20.0, "jitter.min": -1.0, "burst.negative": 9.0, "error.shed.count": 4.0,
    }  # fmt: skip


def test_jitter_and_bursts_of_one_group_are_those_of_its_receivers(tmp_path: Path) -> None:
    empty = dict.fromkeys(tables.JITTER.column_names, 0)
    write(tmp_path, tables.JITTER, [empty | {"receiver": r, "max_ns": 10 * r, "count": 5} for r in (3, 4, 5)])
    burst = dict.fromkeys(tables.BURSTS.column_names, 0) | {"subscription": "q"}
    write(tmp_path, tables.BURSTS, [burst | {"receiver": r, "negative": r} for r in (3, 4, 5)])
    connections = [
        ConnectionRecord(number, role, "peer", group, "queue://q", "q")
        for number, role, group in [(5, "sender", "slow"), (3, "receiver", "fast"), (4, "receiver", "slow")]
    ]
    write_manifest(tmp_path, Manifest("run", 1, {}, [], 0, connections=connections))
    metrics = ["jitter.slow.max", "jitter.fast.max", "burst.slow.negative", "jitter.other.max"]
    assert metric_values(tmp_path, None, metrics) == {  # type: ignore[arg-type] # no summary is read
        "jitter.slow.max": 40.0, "jitter.fast.max": 30.0, "burst.slow.negative": 4.0,
    }  # fmt: skip
    check_campaign_metric("jitter.slow.max")
    assert format_metric("jitter.slow.max", 2.5e9) == "2.5 s"


def test_without_tables_nothing_was_shed_and_jitter_is_unknown(tmp_path: Path) -> None:
    assert metric_values(tmp_path, None, METRICS) == {"burst.negative": 0.0, "error.shed.count": 0.0}  # type: ignore[arg-type]


def test_every_name_that_is_accepted_can_be_read() -> None:
    assert TABLE_VALUES.keys() == TABLE_STATISTICS.keys()


def test_their_names_are_checked_and_their_values_readable() -> None:
    for name in METRICS:
        check_campaign_metric(name)
    with pytest.raises(ValueError, match="must end with one of max, min, mean"):
        check_campaign_metric("jitter.p99")
    assert format_metric("jitter.max", 2.5e9) == "2.5 s"
    assert format_metric("error.shed.count", 12) == "12"


OF_TABLES = [metric for metric in metrics.METRICS.values() if metric.table]


@pytest.mark.parametrize("metric", OF_TABLES, ids=lambda metric: metric.name)
def test_a_metric_of_a_table_reads_columns_that_the_table_has(metric: metrics.Metric, tmp_path: Path) -> None:
    """The registry is below the tables, so no type checker sees a misspelt column."""
    evidence = SummarizedEvidence(None, Rate(0, 0, 0, 0, 0), {}, run_dir=tmp_path)
    metric.value(evidence)  # a run without the table
    table = published_tables()[metric.table]
    values = {"string": "x", "bool": True}
    write(tmp_path, table, [{each.name: values.get(str(each.arrow_type), 1) for each in table.columns}])
    assert metric.value(evidence) is not None


def test_the_peak_of_the_backlog_is_that_of_the_worst_subscription(tmp_path: Path) -> None:
    row = {"second": 0, "sent": 9, "received": 2, "backlog": 7}
    write(tmp_path, tables.BACKLOG, [row | {"subscription": name, "peak": peak} for name, peak in (("a", 7), ("b", 9))])
    evidence = SummarizedEvidence(None, Rate(0, 0, 0, 0, 0), {}, run_dir=tmp_path)
    assert metrics.METRICS["backlog_peak"].value(evidence) == 9
