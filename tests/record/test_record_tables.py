"""Tables are declared once: schemas follow from row classes, and readers get typed rows or a clear error."""

from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from msgspec import Struct

from crescendo.model import plugins
from crescendo.model.errors import ConfigError
from crescendo.model.metrics import PERCENTILES
from crescendo.record import table_reader
from crescendo.record.published_tables import plugin_tables, published_tables
from crescendo.record.table_reader import rows
from crescendo.record.table_types import Int32, Table, column_name
from crescendo.record.tables import (
    BACKLOG,
    CHECKS,
    LATENCY,
    LEDGER_RANGES,
    LITTLE,
    READINGS,
    SPANS,
    TABLES,
    THROUGHPUT,
    BacklogRow,
    SampleStatistics,
    SpanRow,
    ThroughputRow,
    VerdictCheckRow,
)
from installed_package import forget_packages

SAMPLES = Path(__file__).parents[1] / "samples" / "version-0.1"
NEVER = ["bursts", "errors"]  # these runs had neither an outage nor a refused message
LATER = ["recovery", "hops", "jitter_series"]  # version 0.1 had no such tables


def write(run_dir: Path, table: Table[Any], content: pa.Table) -> Path:
    folder = run_dir / "tables" / table.name
    folder.mkdir(parents=True)
    pq.write_table(content, folder / "part-0.parquet")
    (folder / "_SUCCESS").touch()
    return run_dir


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_a_table_describes_itself_and_its_columns(table: Table[Any]) -> None:
    assert table.description
    assert all(column.description for column in table.columns)
    assert len(set(table.column_names)) == len(table.column_names)


ADDED = defaultdict(list, {"latency_histogram": ["sender_group", "destination", "receiver_group"]})
"""Columns that version 0.1 did not write."""


@pytest.mark.parametrize(
    "table", [table for table in TABLES if table.name not in NEVER + LATER], ids=lambda table: table.name
)
def test_the_declaration_is_what_version_0_1_wrote(table: Table[Any]) -> None:
    files = sorted(SAMPLES.glob(f"*/tables/{table.name}/*.parquet"))
    assert files
    for file in files:
        found = [(field.name, field.type) for field in pq.read_schema(file)]
        declared = [(field.name, field.type) for field in table.arrow_schema() if field.name not in ADDED[table.name]]
        assert table.column_names[len(declared) :] == ADDED[table.name]  # new columns are the last
        if table is LEDGER_RANGES:  # an empty table had its columns in another order than one with rows
            found, declared = sorted(found, key=str), sorted(declared, key=str)
        assert found[: len(declared)] == declared
        assert len(found) == len(declared) or table is READINGS


def test_the_statistics_have_every_percentile_with_its_interval() -> None:
    names = [name + end for name in PERCENTILES for end in ("", "_low", "_high")]
    assert list(SampleStatistics.__struct_encode_fields__)[5:] == names


def test_spark_types_follow_from_the_row_class() -> None:
    assert THROUGHPUT.spark_ddl() == (
        "`second` BIGINT, `role` STRING, `connection` INT, `messages` BIGINT, `bytes` BIGINT"
    )
    assert CHECKS.spark_ddl().endswith("`value` DOUBLE, `limit` DOUBLE, `reasons` ARRAY<STRING>")
    assert LITTLE.spark_ddl().endswith("`holds` BOOLEAN")
    assert "`p99.9_low` BIGINT" in LATENCY.spark_ddl()


def test_a_column_is_named_by_its_field() -> None:
    assert column_name(ThroughputRow.second) == "second"
    assert column_name(SampleStatistics.p99_9) == "p99.9"
    with pytest.raises(TypeError, match="not a field"):
        column_name("second")
    with pytest.raises(AttributeError):
        column_name(ThroughputRow.seconds)  # type: ignore[attr-defined]


def test_rows_come_back_as_they_were_written(tmp_path: Path) -> None:
    statistics = SampleStatistics(3, -1, 9, 1, 2.5, *[4, None, 5] * 6)
    written = [
        SpanRow("measure", "send", outcome, statistics, 7.5, share) for outcome, share in [(None, 1.0), ("ok", None)]
    ]
    write(tmp_path, SPANS, SPANS.to_arrow(written))
    assert rows(tmp_path, SPANS) == written
    checks = [VerdictCheckRow("rate", "> 0", "invalid", None, 0.0, ["a", "b"])]
    write(tmp_path, CHECKS, CHECKS.to_arrow(checks))
    assert rows(tmp_path, CHECKS) == checks


def test_a_missing_table_is_empty(tmp_path: Path) -> None:
    assert rows(tmp_path, BACKLOG) == []


def _without_a_column(content: pa.Table) -> pa.Table:
    return content.drop_columns(["peak"])


def _with_a_null(content: pa.Table) -> pa.Table:
    return content.set_column(0, "subscription", pa.nulls(content.num_rows, pa.string()))


def _with_another_type(content: pa.Table) -> pa.Table:
    return content.set_column(1, "second", pa.array(["one"]))


@pytest.mark.parametrize("damage", [_without_a_column, _with_a_null, _with_another_type])
def test_a_table_that_is_not_as_declared_is_refused(tmp_path: Path, damage: Callable[[pa.Table], pa.Table]) -> None:
    write(tmp_path, BACKLOG, damage(BACKLOG.to_arrow([BacklogRow("q", 0, 1, 1, 0, 1)])))
    with pytest.raises(ConfigError, match=r"tables/backlog: cannot be read, analyse the run again"):
        rows(tmp_path, BACKLOG)


def test_a_damaged_file_is_refused(tmp_path: Path) -> None:
    write(tmp_path, BACKLOG, BACKLOG.to_arrow([]))
    (tmp_path / "tables" / "backlog" / "part-0.parquet").write_bytes(b"PAR1 no longer")
    with pytest.raises(ConfigError, match=r"tables/backlog: cannot be read"):
        rows(tmp_path, BACKLOG)


def test_a_table_that_is_too_long_is_not_read_into_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_reader, "MAX_ROWS", 2)
    write(tmp_path, BACKLOG, BACKLOG.to_arrow([BacklogRow("q", second, 1, 1, 0, 1) for second in range(3)]))
    with pytest.raises(ConfigError, match=r"3 rows are too many"):
        rows(tmp_path, BACKLOG)


class QueueAgeRow(Struct, frozen=True):
    """The age of the oldest message."""

    queue: Annotated[Int32, "number of the queue"]
    age_ns: Annotated[int | None, "age of its oldest message"]


class UntypedRow(Struct, frozen=True):
    """A column of a type that no table has."""

    value: complex


QUEUE_AGE = Table("queue_age", QueueAgeRow, build=lambda context: context)
OWN_NAME = Table("latency", QueueAgeRow, build=lambda context: context)
RESERVED_NAME = Table("runs", QueueAgeRow, build=lambda context: context)
PATH_NAME = Table("../elsewhere", QueueAgeRow, build=lambda context: context)
NO_BUILD = Table("unbuilt", QueueAgeRow)
UNTYPED = Table("untyped", UntypedRow, build=lambda context: context)
NO_TABLE = "queue_age"
NAMES = {"OWN_NAME": "latency", "RESERVED_NAME": "runs", "PATH_NAME": "../elsewhere", "NO_BUILD": "unbuilt"}


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """Install a package that offers values of this module as tables, by the metadata that installers write."""

    def installed(*names: str) -> None:
        folder = tmp_path / "toy_tables-1.0.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: toy-tables\nVersion: 1.0\n")
        lines = [f"{NAMES.get(name, name.lower())} = {__name__}:{name}" for name in names]
        (folder / "entry_points.txt").write_text("\n".join([f"[{plugins.TABLES}]", *lines]))
        monkeypatch.syspath_prepend(tmp_path)
        forget_packages()

    yield installed
    forget_packages()


def test_a_table_of_another_package_is_listed_after_our_own(install: Callable[..., None]) -> None:
    install("QUEUE_AGE")
    assert plugin_tables() == [QUEUE_AGE]
    assert published_tables()["queue_age"] is QUEUE_AGE
    assert published_tables().keys() == {table.name for table in TABLES} | {"queue_age"}


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("OWN_NAME", "there is another table named 'latency'"),
        ("RESERVED_NAME", "'runs' cannot be the name of a table"),
        ("PATH_NAME", "'../elsewhere' cannot be the name of a table"),
        ("NO_BUILD", "has no function `build`"),
        ("UNTYPED", "has an unknown type"),
        ("NO_TABLE", "is not a Table"),
    ],
)
def test_a_table_that_cannot_be_used_is_named_and_skipped(
    install: Callable[..., None], capsys: pytest.CaptureFixture[str], name: str, sentence: str
) -> None:
    install(name, "QUEUE_AGE")
    assert plugin_tables() == [QUEUE_AGE]
    assert published_tables()["latency"] is LATENCY
    assert sentence in capsys.readouterr().err
