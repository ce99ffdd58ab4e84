"""Is a recording left alone once it is sealed, by everything that reads it?"""

import hashlib
import socket
from pathlib import Path

import pytest
from msgspec.structs import replace
from pyspark.sql import SparkSession

from crescendo.calibrate.calibration_file import Ceiling, machine_of, save_ceilings
from crescendo.pipeline.job import analyze
from crescendo.pipeline.lake.build import build_lake
from crescendo.pipeline.live.watch import watch
from crescendo.record.manifest import PeerRecord, State, read_manifest, write_manifest
from crescendo.record.observed import write_observation
from crescendo.record.summary import SUMMARY, Summary, read_summary
from crescendo.report.page import write_report
from crescendo.run.ceiling import with_ceiling
from tiny_recordings import Tiny

HOST = socket.gethostname()


@pytest.fixture
def sealed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A sealed recording of this machine that was watched while it was in progress."""
    monkeypatch.setenv("CRESCENDO_STATE", str(tmp_path / "state"))
    tiny = Tiny()
    tiny.carry(4000)
    run_dir = tiny.write(tmp_path / "runs" / "tiny")
    manifest = replace(
        read_manifest(run_dir),
        host={"name": HOST, "processor": "p", "cores": 2},
        versions={"python": "3", "crescendo": "0"},
        peers=[replace(peer, host=HOST) for peer in read_manifest(run_dir).peers],
    )
    running: list[PeerRecord] = []
    write_observation(run_dir, replace(manifest, state=State.INCOMPLETE, peers=running), 1)
    write_manifest(run_dir, manifest)
    return run_dir


def recorded(run_dir: Path) -> dict[str, str]:
    """The hash of every file of the recording; tables, summary and report are not part of it."""
    files = [
        run_dir / "manifest.json",
        run_dir / "observed.json",
        *run_dir.glob("*/*.parquet"),
        *run_dir.glob("journal/*"),
    ]
    return {str(file): hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


def test_watching_analysing_calibrating_and_reporting_leave_a_sealed_recording_alone(
    sealed: Path, spark: SparkSession
) -> None:
    before = recorded(sealed)
    assert len(before) >= 6
    watch(sealed, spark, lambda _: None, trigger_s=0.1)
    analyze(sealed, spark, lambda _: None, finish=with_ceiling)
    assert read_summary(sealed).ceiling_percent is None
    manifest = read_manifest(sealed)
    machine = machine_of(manifest.host, manifest.versions)
    save_ceilings(machine, [Ceiling("amqp10", role, 256, 2000.0, 1.0, 3.0, 1) for role in ("sender", "receiver")], 1)
    analyze(sealed, spark, lambda _: None, finish=with_ceiling)
    assert read_summary(sealed).ceiling_percent == pytest.approx(50.0)
    build_lake([sealed], sealed.parent / "lake", spark, lambda _: None, finish=with_ceiling)
    page = write_report(sealed).read_text(encoding="utf-8")
    assert "by live tables, on 1 of the cores" in page
    assert recorded(sealed) == before


def test_the_summary_is_written_once_and_complete(sealed: Path, spark: SparkSession) -> None:
    def finish(run_dir: Path, summary: Summary) -> Summary:
        assert not (run_dir / SUMMARY).exists()
        assert any((run_dir / "tables" / "throughput").glob("*.parquet"))
        return replace(summary, ceiling_percent=12.5)

    assert analyze(sealed, spark, lambda _: None, finish=finish).ceiling_percent == 12.5
    assert read_summary(sealed).ceiling_percent == 12.5
