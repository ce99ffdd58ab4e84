"""Parts that are not what they should be are named and left out, and what rests on them cannot be judged."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from many_runs import eventful, write_run
from msgspec.structs import replace
from pyspark.sql import SparkSession
from table_hashes import hashes
from tiny_recordings import silent

from crescendo.model.verdict import Outcome
from crescendo.pipeline.gathering import Gathered, gather
from crescendo.record.manifest import read_manifest, sha256_of, write_manifest
from crescendo.record.schema import arrow_schema

PART = "received/receiver-0-00000.parquet"


def truncated(part: Path) -> None:
    part.write_bytes(part.read_bytes()[:-100])


def wrongly_typed(part: Path) -> None:
    table = pq.ParquetFile(part).read()
    pq.write_table(table.set_column(2, "seq", table["seq"].cast(pa.string())), part)


def foreign(part: Path) -> None:
    pq.write_table(pa.table({"city": ["Zürich", "Brno"], "rain_mm": [1.0, 2.0]}), part)


def rubbish_inside(part: Path) -> None:
    """A sound footer, and pages that nobody can read."""
    content = bytearray(part.read_bytes())
    footer = int.from_bytes(content[-8:-4], "little") + 8
    content[4 : len(content) - footer] = bytes(0xFF for _ in content[4 : len(content) - footer])
    part.write_bytes(content)


def fewer_rows(part: Path) -> None:
    table = pq.ParquetFile(part).read().cast(arrow_schema("received"))
    pq.write_table(table[:3], part)


DAMAGE: dict[str, tuple[Callable[[Path], None], str]] = {
    "truncated": (truncated, "bytes, not"),
    "wrongly-typed": (wrongly_typed, "does not have the columns of its table"),
    "foreign": (foreign, "does not have the columns of its table"),
    "rubbish": (rubbish_inside, "cannot be read to its end"),
    "fewer-rows": (fewer_rows, "has 3 rows"),
}


@pytest.fixture(scope="module")
def results(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Gathered]:
    """A good run among damaged ones. All but the truncated part have the right hash: somebody meant it."""
    folder = tmp_path_factory.mktemp("damage")
    runs = []
    for name in (*DAMAGE, "good"):
        run = write_run(folder, name, eventful(1, 200))
        if name != "good":
            DAMAGE[name][0](run / PART)
        if name not in {"good", "truncated"}:
            forged = {"octets": (run / PART).stat().st_size, "sha256": sha256_of(run / PART)}
            manifest = read_manifest(run)
            files = [replace(file, **forged) if file.path == PART else file for file in manifest.files]
            write_manifest(run, replace(manifest, files=files))
        runs.append(run)
    return {Path(one.run).name: one for one in gather(runs, folder / "lake", spark, silent)}


@pytest.mark.parametrize("name", list(DAMAGE))
def test_a_damaged_part_is_named_and_nothing_is_judged_on_it(results: dict[str, Gathered], name: str) -> None:
    summary = results[name].summary
    assert summary is not None, results[name].fault
    intact = next(item for item in summary.validity if item.name == "every part intact")
    assert not intact.holds
    assert PART in intact.detail
    assert DAMAGE[name][1] in intact.detail
    assert {check.outcome for check in summary.verdict.checks} == {Outcome.INVALID}
    assert summary.total.sent == 200  # the rest of the recording is there
    assert summary.total.delivered == 0


def test_damage_does_not_spread(results: dict[str, Gathered], spark: SparkSession, tmp_path: Path) -> None:
    good = Path(results["good"].run)
    alone = shutil.copytree(good, tmp_path / "alone")
    (result,) = gather([alone], tmp_path / "lake", spark, silent)
    assert result.summary == results["good"].summary
    (alone / "analysis.json").unlink()
    (again,) = gather([alone], tmp_path / "lake", spark, silent)
    assert again.computed
    assert hashes(alone / "tables") == hashes(good / "tables")
