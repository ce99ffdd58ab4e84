"""Runs that are analysed in one call get the tables that each of them gets alone."""

import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from crescendo.pipeline.context import AnalysisContext, open_context
from crescendo.pipeline.job import analyze
from crescendo.pipeline.joint_scan import can_join, scan_together
from crescendo.pipeline.lake.build import build_lake
from crescendo.pipeline.source.ingest import readable_recording
from crescendo.pipeline.storage.table_store import TableStore
from crescendo.record.manifest import Phase
from crescendo.record.schema import Flag
from crescendo.record.summary import read_summary
from many_runs import eventful, plain, write_run
from table_hashes import hashes
from tiny_recordings import MEASURE_NS, MS, SECOND_NS, Tiny, silent

TOGETHER = ("small", "large")


def unlike_each_other() -> dict[str, Tiny]:
    """Runs that differ in everything that a manifest says about rows: groups, numbers, schedules, phases."""
    strangers = Tiny(
        group={"rate": 50.0}, phases=[Phase("measure", MEASURE_NS + SECOND_NS, MEASURE_NS + 2 * SECOND_NS)]
    )
    strangers.carry(1500)
    strangers.send(7, 1, MEASURE_NS)  # a sender and a receiver that are not in the manifest
    strangers.deliver(9, 7, 1, MEASURE_NS, MEASURE_NS + MS)
    strangers.deliver(0, 0, 5, MEASURE_NS, MEASURE_NS + MS, int(Flag.CORRUPT))
    groups = Tiny(
        group={"name": "a", "address": "queue://a", "senders": 2, "receivers": 2, "rate": 0},
        more_groups=[{"name": "b", "address": "queue://b", "rate": 100.0}],
        phases=[],
    )
    for number in range(3):
        groups.carry(300, sender=number, receiver=number, latency_ns=(number + 1) * 7 * MS)
    return {"one lost": plain(2), "strangers": strangers, "groups": groups}


@pytest.fixture(scope="module")
def folder(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The runs three times: in `alone`, each by itself; in one call, `small` as such and `large` as larger ones."""
    folder = tmp_path_factory.mktemp("joint")
    for name, tiny in unlike_each_other().items():
        alone = write_run(folder / "alone", name, tiny, len(name), inspected=name == "groups")
        for side in TOGETHER:
            shutil.copytree(alone, folder / side / name)
        analyze(alone, spark, silent)
    joined: list[int] = []

    def scan_and_count(contexts: list[AnalysisContext], stores: list[TableStore]) -> None:
        scan_together(contexts, stores)
        joined.append(len(contexts))

    for side in TOGETHER:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("crescendo.pipeline.job.scan_together", scan_and_count)
            if side == "large":
                patch.setattr("crescendo.pipeline.joint_scan.COLLECTED_ROWS", 0)
            results = build_lake(sorted((folder / side).iterdir()), folder / f"lake of {side}", spark, silent)
        assert [(one.computed, one.fault) for one in results] == [(True, "")] * 3
    assert joined == [3, 3], "after an error they would have been scanned one by one"
    return folder


@pytest.mark.parametrize("name", unlike_each_other())
@pytest.mark.parametrize("side", TOGETHER)
def test_runs_analysed_together_have_the_tables_and_the_verdict_of_each_alone(
    folder: Path, side: str, name: str
) -> None:
    alone, together = folder / "alone" / name, folder / side / name
    assert hashes(together / "tables") == hashes(alone / "tables")
    assert read_summary(together) == read_summary(alone)


def test_only_runs_of_one_clock_with_messages_and_without_spans_share_a_scan(
    folder: Path, spark: SparkSession, tmp_path: Path
) -> None:
    write_run(tmp_path, "empty", Tiny())
    write_run(tmp_path, "spans", eventful())
    shifted = plain(2)
    shifted.offset_ns = 5 * MS
    write_run(tmp_path, "clock", shifted)
    runs = [*(folder / "small").iterdir(), *tmp_path.iterdir()]
    alone = {run.name for run in runs if not can_join(open_context(readable_recording(run), spark, full=False))}
    assert alone == {"empty", "spans", "clock"}
