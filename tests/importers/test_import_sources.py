"""Which files are refused, and does an import leave a complete recording or none?"""

import hashlib
import json
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from crescendo.importers.format import ImportOptions
from crescendo.importers.job import plan_import, run_import
from crescendo.importers.registry import FORMATS
from crescendo.model.errors import ConfigError
from crescendo.pipeline.job import analyze
from crescendo.record.manifest import read_manifest
from crescendo.record.reader import open_recording
from imported_runs import SAMPLES, Run

FOREIGN = {"picture.png": b"\x89PNG\r\n\x1a\n" + bytes(100), "prose.txt": b"Hello reader,\nthis is not a log.\n"}


@pytest.mark.parametrize("format_name", FORMATS)
@pytest.mark.parametrize("name", FOREIGN)
def test_a_foreign_file_is_refused_with_what_was_expected(format_name: str, name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(FOREIGN[name])
    with pytest.raises(ConfigError, match=rf"{name}: is not of the format {format_name}; expected \w"):
        plan_import(format_name, [tmp_path / name], tmp_path / "run")
    with pytest.raises(ConfigError, match="none of the 1 files in it"):
        plan_import(format_name, [tmp_path], tmp_path / "run")


def test_mistakes_are_reported_before_spark_starts(tmp_path: Path) -> None:
    log = SAMPLES / "mlmq" / "test_log.log"
    with pytest.raises(ConfigError, match="no import format is called 'mlmq'; known: maestro, mlmq-log"):
        plan_import("mlmq", [log], tmp_path / "run")
    with pytest.raises(ConfigError, match="no such file or directory"):
        plan_import("mlmq-log", [tmp_path / "nothing"], tmp_path / "run")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "something").touch()
    with pytest.raises(ConfigError, match="choose another --out"):
        plan_import("mlmq-log", [log], tmp_path / "run")


def test_a_dat_file_of_another_version_is_refused(tmp_path: Path) -> None:
    content = bytearray((SAMPLES / "maestro" / "sender.dat").read_bytes())
    content[11] = 9
    (tmp_path / "sender.dat").write_bytes(content)
    with pytest.raises(ConfigError, match="is not of the format maestro"):
        plan_import("maestro", [tmp_path / "sender.dat"], tmp_path / "run")


def test_empty_files_make_an_empty_recording(importing: Run, spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "empty.log").touch()
    summary = importing("amqperf", [tmp_path / "empty.log"], tmp_path / "run")
    assert (summary.tables, summary.rejected, summary.start_ns) == ({}, 0, None)
    assert not open_recording(tmp_path / "run").damaged
    assert analyze(tmp_path / "run", spark, lambda _: None).verdict.outcome.value == "invalid"


def test_the_same_files_give_the_same_recording(importing: Run, tmp_path: Path) -> None:
    source = tmp_path / "a [strange] *name: of a log"
    lines = [f"{n} {1_400_000_000_000 + n} {1_400_000_000_002 + n}" for n in range(50) if n % 9]
    source.write_text("\n".join([*lines, "nonsense1"]))
    importing("amqperf", [source], tmp_path / "first")
    importing("amqperf", [source, source], tmp_path / "second")

    def content(run_dir: Path) -> dict[str, str]:
        files = [file for file in run_dir.rglob("*") if file.is_file() and file.name != "manifest.json"]
        return {str(file.relative_to(run_dir)): hashlib.sha256(file.read_bytes()).hexdigest() for file in files}

    assert content(tmp_path / "first") == content(tmp_path / "second")
    assert {name.split("/")[0] for name in content(tmp_path / "first")} == {"sent", "received", "journal", "rejected"}
    first, second = read_manifest(tmp_path / "first"), read_manifest(tmp_path / "second")
    assert first.files == second.files
    assert first.phases == second.phases
    assert hashlib.sha256(source.read_bytes()).hexdigest() in first.system["configuration"]["sources"]


def test_an_interrupted_import_leaves_nothing(spark: SparkSession, tmp_path: Path) -> None:
    def interrupt(step: str) -> None:
        if step.startswith("setting aside"):
            raise KeyboardInterrupt

    plan = plan_import("mlmq-log", [SAMPLES / "mlmq"], tmp_path / "run")
    with pytest.raises(KeyboardInterrupt):
        run_import(plan, spark, ImportOptions(), interrupt)
    assert list(tmp_path.iterdir()) == []


def test_the_command_prints_a_summary(tmp_path: Path) -> None:
    """In a separate process, as a user runs it."""
    program = (
        "import sys; from pathlib import Path; from crescendo.cli.import_ import import_; "
        "sys.exit(import_('maestro', [Path(sys.argv[1])], Path(sys.argv[2]), '60s', '5ms', None, True))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(SAMPLES / "maestro" / "file-03.hdr"), str(tmp_path / "run")],
        capture_output=True, text=True, check=True, timeout=170,
    )  # fmt: skip
    printed = json.loads(done.stdout)
    assert printed["tables"] == {"histograms": open_recording(tmp_path / "run").rows("histograms")}
    assert printed["sources"][0]["kind"] == "hdr"
    assert "starting Spark" in done.stderr
    assert read_manifest(tmp_path / "run").clocks[0].bound_ns == 5_000_000
