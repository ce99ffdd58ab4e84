"""Which files are refused, and does an import leave a complete recording or none?"""

import hashlib
import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from crescendo.cli.import_ import _print
from crescendo.cli.main import app
from crescendo.importers.format import ImportOptions
from crescendo.importers.job import plan_import, run_import
from crescendo.importers.message_counts import message_counts
from crescendo.importers.parts import PartsWriter
from crescendo.importers.registry import FORMATS
from crescendo.model.errors import ConfigError
from crescendo.pipeline.job import analyze
from crescendo.record.manifest import read_manifest
from crescendo.record.reader import open_recording
from crescendo.record.schema import TABLES
from imported_runs import SAMPLES, Run, rows_of

T_MS = 1_400_000_000_000
FOREIGN = {"picture.png": b"\x89PNG\r\n\x1a\n" + bytes(100), "prose.txt": b"Hello reader,\nthis is not a log.\n"}


@pytest.mark.parametrize("format_name", FORMATS)
@pytest.mark.parametrize("name", FOREIGN)
def test_a_foreign_file_is_refused_with_what_was_expected(format_name: str, name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(FOREIGN[name])
    with pytest.raises(ConfigError, match=rf"{name}: is not in the format {format_name}; expected \w"):
        plan_import(format_name, [tmp_path / name], tmp_path / "run")
    with pytest.raises(ConfigError, match="none of the 1 files in it"):
        plan_import(format_name, [tmp_path], tmp_path / "run")


def test_mistakes_are_reported_before_spark_starts(tmp_path: Path) -> None:
    log = SAMPLES / "mlmq" / "test_log.log"
    with pytest.raises(ConfigError, match=r"no import format is called 'mlmq'; did you mean 'mlmq-log'\? known: "):
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
    with pytest.raises(ConfigError, match="is not in the format maestro"):
        plan_import("maestro", [tmp_path / "sender.dat"], tmp_path / "run")


def test_empty_files_make_an_empty_recording(importing: Run, spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "empty.log").touch()
    summary = importing("amqperf", [tmp_path / "empty.log"], tmp_path / "run")
    assert (summary.tables, summary.messages, summary.rejected, summary.start_ns) == ({}, {}, 0, None)
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


def test_messages_are_counted_once_and_not_as_rows(tmp_path: Path) -> None:
    """A receiver with messages and counts of them, a sender with counts only, and settlements of ranges."""
    rows: dict[str, list[dict[str, object]]] = {
        "rates": [
            {"t_ns": n, "peer": role, "role": role, "messages": 50} for n in range(3) for role in ("sender", "receiver")
        ],
        "settled": [
            {"sender": 0, "first_seq": first, "last_seq": last, "sent_ns": 1, "settled_ns": 2, "outcome": 1}
            for first, last in ((0, 99), (100, 100), (110, 149))
        ],
        "received": [dict.fromkeys((column.name for column in TABLES["received"]), n) for n in range(148)],
        "histograms": [{"t_ns": 0, "peer": "r", "kind": "transfer", "bucket": n, "count": 74} for n in range(2)],
    }
    parts = PartsWriter(tmp_path)
    for table, content in rows.items():
        parts.write_rows(table, content)
    counts = message_counts(tmp_path, parts.parts)
    assert counts == {"sent": 150, "received": 148, "settled": 141, "timed": 148}
    assert list(counts) == ["sent", "received", "settled", "timed"]


def test_the_command_prints_messages_rows_and_rejected_lines(
    importing: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "consumer.log"
    log.write_text("\n".join(f"{n},{T_MS + n},{T_MS + n + 2}" for n in range(3000) if n != 7) + "\nnonsense1\n")
    _print(importing("amqperf", [log], tmp_path / "run"), tmp_path / "run")
    printed = capsys.readouterr().out.splitlines()
    assert printed[0] == f"  {log}: consumer, 3,000 read, 1 rejected"
    # Number 7 is missing between two others, so it was sent.
    assert printed[1:3] == ["msgs   sent 3,000, received 2,999", "rows   received 2,999, sent 3,000"]
    assert printed[-1] == f"run    {tmp_path / 'run'}"


def test_the_command_prints_a_summary(spark: SparkSession, tmp_path: Path) -> None:
    """As JSON. It uses the Spark session that is running, and leaves it running."""
    arguments = ["import", "maestro", str(SAMPLES / "maestro" / "file-03.hdr"), "--out", str(tmp_path / "run")]
    done = CliRunner().invoke(app, [*arguments, "--clock-bound", "5ms", "--json"])
    assert done.exit_code == 0, done.output
    printed = json.loads(done.stdout)
    assert printed["tables"] == {"histograms": open_recording(tmp_path / "run").rows("histograms")}
    (timed,) = rows_of(tmp_path / "run", "histograms", "SELECT sum(count)::BIGINT FROM rows")
    assert printed["messages"] == {"timed": timed[0]}
    assert timed[0] > printed["tables"]["histograms"]
    assert printed["sources"][0]["kind"] == "hdr"
    assert "starting Spark" in done.stderr
    assert read_manifest(tmp_path / "run").clocks[0].bound_ns == 5_000_000
    assert spark.range(3).count() == 3
