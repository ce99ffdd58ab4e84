"""Tables are written as they are declared, and those of other packages never affect the verdict."""

import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from msgspec import Struct
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from crescendo.model import plugins
from crescendo.pipeline.context import AnalysisContext
from crescendo.pipeline.job import analyze
from crescendo.pipeline.lake.build import build_lake
from crescendo.pipeline.receipts import read_receipt
from crescendo.pipeline.storage.locations import Directory
from crescendo.pipeline.traffic.inspector_gaps import FAILED
from crescendo.record.table_reader import rows
from crescendo.record.table_types import Int32, Table
from crescendo.record.tables import READINGS, TABLES
from installed_package import forget_packages
from many_runs import eventful, plain, write_run
from tiny_recordings import MEASURE_NS, silent

OF_OTHER_RUNS = {"hops"}
"""Tables of runs through a network; their own tests read their rows."""


def columns_of(run_dir: Path, table: str) -> list[tuple[str, pa.DataType]]:
    (schema,) = {pq.read_schema(file) for file in (run_dir / "tables" / table).glob("*.parquet")}
    return [(field.name, field.type) for field in schema]


def test_every_table_is_written_as_declared(spark: SparkSession, tmp_path: Path) -> None:
    tiny = eventful()
    tiny.events.append((MEASURE_NS, "inspector-0", FAILED, '{"reason": "refused"}'))
    run_dir = write_run(tmp_path, "run", tiny, inspected=True)
    analyze(run_dir, spark, silent, full=True)
    written = {folder.name for folder in (run_dir / "tables").iterdir()}
    expected = [table for table in TABLES if table.name not in OF_OTHER_RUNS]
    assert written == {table.name for table in expected}
    for table in expected:
        found, declared = columns_of(run_dir, table.name), [(each.name, each.type) for each in table.arrow_schema()]
        assert found[: len(declared)] == declared, table.name
        assert len(found) == len(declared) or table is READINGS
        assert rows(run_dir, table), table.name  # this run has rows in every table


class SizeRow(Struct, frozen=True):
    """The messages of one sender and their size."""

    sender: Annotated[Int32, "number of the sender"]
    messages: Annotated[int, "messages sent"]
    largest: Annotated[float, "size of the largest"]


def _sizes(context: AnalysisContext) -> DataFrame:
    """In another order, with other types, and with a column too many."""
    counts = context.frames.sent.groupBy("sender").agg(F.max("size").alias("largest"), F.count("*").alias("messages"))
    return counts.withColumn("unasked", F.lit(1))


def _raise(context: AnalysisContext) -> DataFrame:
    raise RuntimeError("the toy is broken\nwith details")


def _fail_in_spark(context: AnalysisContext) -> DataFrame:
    return _sizes(context).withColumn("messages", F.raise_error(F.lit("broken on a worker")))


def _too_few_columns(context: AnalysisContext) -> DataFrame:
    return _sizes(context).drop("largest")


def _nothing(context: AnalysisContext) -> None:
    return None


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """Install a package with these tables, by the metadata that installers write."""
    site = tmp_path / "site"

    def installed(**tables: Table[Any]) -> None:
        folder = site / "toy_tables-1.0.dist-info"
        folder.mkdir(parents=True)
        (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: toy-tables\nVersion: 1.0\n")
        lines = [f"{table.name} = toy_tables:{name}" for name, table in tables.items()]
        (folder / "entry_points.txt").write_text("\n".join([f"[{plugins.TABLES}]", *lines]))
        module = types.ModuleType("toy_tables")
        module.__dict__.update(tables)
        monkeypatch.setitem(sys.modules, "toy_tables", module)
        monkeypatch.syspath_prepend(site)
        forget_packages()

    yield installed
    forget_packages()


SIZES = Table("message_sizes", SizeRow, build=_sizes)


def test_a_table_of_another_package_is_a_table_like_any_other(
    spark: SparkSession, tmp_path: Path, install: Callable[..., None]
) -> None:
    run_dir = write_run(tmp_path, "run", plain())
    (before,) = build_lake([run_dir], tmp_path / "lake", spark, silent)
    install(sizes=SIZES)
    (after,) = build_lake([run_dir], tmp_path / "lake", spark, silent)
    assert after.computed  # a package was installed, so the tables are out of date
    assert before.summary == after.summary
    assert columns_of(run_dir, "message_sizes") == [
        ("sender", pa.int32()), ("messages", pa.int64()), ("largest", pa.float64()),
    ]  # fmt: skip
    assert rows(run_dir, SIZES) == [SizeRow(0, 200, 100.0)]
    receipt = read_receipt(Directory(run_dir))
    assert receipt is not None
    assert "message_sizes" in receipt.tables
    assert list((tmp_path / "lake" / "message_sizes").rglob("*.parquet"))
    (again,) = build_lake([run_dir], tmp_path / "lake", spark, silent)
    assert not again.computed


def test_a_broken_table_is_named_and_left_out(
    spark: SparkSession, tmp_path: Path, install: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    run_dir = write_run(tmp_path, "run", plain())
    expected = analyze(run_dir, spark, silent)
    usual = {folder.name for folder in (run_dir / "tables").iterdir()}
    broken = {"raises": _raise, "fails": _fail_in_spark, "lacks": _too_few_columns, "empty": _nothing}
    tables = {name: Table(f"toy_{name}", SizeRow, build=build) for name, build in broken.items()}
    tables["unknown"] = Table("toy_unknown", SizeRow, build="toy_tables:no_such_function")
    install(**tables, sizes=SIZES)
    assert analyze(run_dir, spark, silent) == expected
    assert {folder.name for folder in (run_dir / "tables").iterdir()} == usual | {"message_sizes"}
    told = capsys.readouterr().err
    assert "the table toy_raises of a plugin is left out: RuntimeError: the toy is broken\n" in told
    for name in ("toy_fails", "toy_lacks", "toy_unknown"):
        assert f"the table {name} of a plugin is left out" in told
    assert "toy_empty" not in told  # no rows is not a fault
