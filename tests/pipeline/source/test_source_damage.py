"""Damaged parts are named and left out, and checks that need them are invalid."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from msgspec.structs import replace
from pyspark.sql import SparkSession

from crescendo.model.verdict import Outcome
from crescendo.pipeline.job import analyze
from crescendo.pipeline.lake.build import LakeBuild, build_lake
from crescendo.record.manifest import MANIFEST, read_manifest, sha256_of, write_manifest
from crescendo.record.schema import arrow_schema
from many_runs import plain, write_run
from table_hashes import hashes
from tiny_recordings import START_NS, Tiny, silent


def truncated(part: Path) -> None:
    part.write_bytes(part.read_bytes()[:-100])


def wrongly_typed(part: Path) -> None:
    table = pq.ParquetFile(part).read()
    pq.write_table(table.set_column(0, "t_ns", table["t_ns"].cast(pa.string())), part)


def foreign(part: Path) -> None:
    pq.write_table(pa.table({"city": ["Zürich", "Brno"], "rain_mm": [1.0, 2.0]}), part)


def corrupt_pages(part: Path) -> None:
    """A valid footer, and pages that cannot be read."""
    content = bytearray(part.read_bytes())
    footer = int.from_bytes(content[-8:-4], "little") + 8
    content[4 : len(content) - footer] = b"\xff" * (len(content) - footer - 4)
    part.write_bytes(content)


def fewer_rows(part: Path) -> None:
    table = pq.ParquetFile(part).read().cast(arrow_schema("readings"))
    pq.write_table(table[:3], part)


DAMAGE: dict[str, tuple[Callable[[Path], None], str]] = {
    "settled/sender-0-00000.parquet": (truncated, "bytes, not"),
    "spans/receiver-0-00000.parquet": (wrongly_typed, "does not have the columns of its table"),
    "events/receiver-0-00000.parquet": (foreign, "does not have the columns of its table"),
    "received/receiver-0-00000.parquet": (corrupt_pages, "cannot be read to its end"),
    "readings/inspector-0-00000.parquet": (fewer_rows, "has 3 rows"),
}


@pytest.fixture(scope="module")
def results(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> list[LakeBuild]:
    """A run with nearly every part damaged, and an intact one. All but one part have a correct hash, on purpose."""
    folder = tmp_path_factory.mktemp("damage")
    tiny = plain()
    tiny.spans.append((START_NS, "client", "send", 5, 0.0, "ok", ""))
    tiny.events.append((START_NS, "agent-0", "fault", "{}"))
    bad, good = write_run(folder, "bad", tiny, inspected=True), write_run(folder, "good", plain())
    manifest = read_manifest(bad)
    files = []
    for part in manifest.files:
        if part.path in DAMAGE:
            DAMAGE[part.path][0](bad / part.path)
        forged = {"octets": (bad / part.path).stat().st_size, "sha256": sha256_of(bad / part.path)}
        files.append(part if part.table == "settled" else replace(part, **forged))
    write_manifest(bad, replace(manifest, files=files))
    return build_lake([bad, good], folder / "lake", spark, silent)


def test_damaged_parts_are_named_and_every_check_is_invalid(results: list[LakeBuild]) -> None:
    summary = results[0].summary
    assert summary is not None, results[0].fault
    intact = next(item for item in summary.validity if item.name == "every part intact")
    assert not intact.holds
    for part, (_, fault) in DAMAGE.items():
        reported = next(each for each in intact.detail.split("; ") if part in each)
        assert fault in reported
    assert {check.outcome for check in summary.verdict.checks} == {Outcome.INVALID}
    assert summary.total.sent == 200  # the rest of the recording is analysed
    assert (summary.total.delivered, summary.total.settled) == (0, 0)


def test_damage_does_not_spread(results: list[LakeBuild], spark: SparkSession, tmp_path: Path) -> None:
    good = Path(results[1].run)
    alone = write_run(tmp_path, "good", plain())
    assert analyze(alone, spark, silent) == results[1].summary
    assert hashes(alone / "tables") == hashes(good / "tables")


def test_files_that_the_experiment_names_are_not_opened(spark: SparkSession, tmp_path: Path) -> None:
    """They may be traps: opening a FIFO would never return."""
    tiny = Tiny()
    tiny.carry(20)
    run_dir = tiny.write(tmp_path / "run")
    os.mkfifo(tmp_path / "trap")
    manifest = json.loads((run_dir / MANIFEST).read_text())
    manifest["experiment"]["profile"] = {"kind": "replay", "file": str(tmp_path / "trap")}
    manifest["experiment"]["workload"][0]["size"] = {"file": str(tmp_path / "trap")}
    (run_dir / MANIFEST).write_text(json.dumps(manifest))
    assert analyze(run_dir, spark, silent).total.delivered == 20
