"""Does a recording hold what its experiment read, or say exactly what that was?"""

import hashlib
import os
from pathlib import Path

import pytest

from crescendo.model.errors import ConfigError
from crescendo.model.experiment_file import experiment_from, recorded_experiment, to_document
from crescendo.model.experiment_inputs import derived_values, input_files, with_inputs_at
from crescendo.record.inputs import MAX_KEPT_BYTES, keep_inputs, kept_at, with_derived

LINES = b"a\nbcd\n\nxy"


def document(lines: Path, trace: Path) -> dict[str, object]:
    groups = [{"name": "main", "size": {"file": str(lines)}}, {"name": "other", "size": {"file": str(lines)}}]
    return {"name": "x", "workload": groups, "profile": {"kind": "replay", "file": str(trace), "speed": 2}}


def test_files_are_kept_and_the_copies_are_read(tmp_path: Path) -> None:
    lines, trace, run_dir = tmp_path / "lines", tmp_path / "trace", tmp_path / "run"
    lines.write_bytes(LINES)
    trace.write_text("10\n11\n14\n")
    run_dir.mkdir()
    experiment = experiment_from(document(lines, trace))
    assert input_files(experiment) == [str(lines), str(trace)]
    inputs = keep_inputs(run_dir, input_files(experiment))
    lines.write_bytes(b"edited meanwhile")
    trace.unlink()
    copies = kept_at(run_dir, inputs)
    moved = with_inputs_at(experiment, copies)
    assert [group.size.lines for group in moved.workload] == [[b"a", b"bcd", b"", b"xy"]] * 2
    assert moved.pacer_of(moved.workload[0], 0).due_count(10**9) == 2
    described = with_derived(inputs, derived_values(moved), copies)
    assert [item.kept for item in described] == ["inputs/0.txt", "inputs/1.txt"]
    assert (described[0].octets, described[0].sha256) == (len(LINES), hashlib.sha256(LINES).hexdigest())
    assert described[0].derived == {"lines": 4, "shortest_bytes": 0, "longest_bytes": 3, "line_bytes": 6}
    assert described[1].derived == {"arrivals": 3, "span_ns": 2 * 10**9}
    assert to_document(experiment)["profile"]["file"] == str(trace)  # the experiment keeps its own names


def test_a_large_file_is_described_and_not_kept(tmp_path: Path) -> None:
    large, run_dir = tmp_path / "large", tmp_path / "run"
    run_dir.mkdir()
    with large.open("wb") as file:
        file.truncate(MAX_KEPT_BYTES + 1)
    (described,) = keep_inputs(run_dir, [str(large)])
    assert (described.octets, described.kept) == (MAX_KEPT_BYTES + 1, "")
    with large.open("rb") as file:
        assert described.sha256 == hashlib.file_digest(file, "sha256").hexdigest()
    assert list((run_dir / "inputs").iterdir()) == []
    assert kept_at(run_dir, [described]) == {}


@pytest.mark.parametrize("broken", ["lines", "trace"])
@pytest.mark.parametrize(("kind", "reason"), [("missing", "No such file"), ("fifo", "not a regular file")])
def test_a_file_that_cannot_be_read_is_refused_for_a_run_and_ignored_in_a_recording(
    tmp_path: Path, broken: str, kind: str, reason: str
) -> None:
    (tmp_path / "lines").write_bytes(LINES)
    (tmp_path / "trace").write_text("1\n2\n")
    (tmp_path / broken).unlink()
    if kind == "fifo":
        os.mkfifo(tmp_path / broken)
    written = document(tmp_path / "lines", tmp_path / "trace")
    place = {"lines": r"workload\.main: size", "trace": "profile: file"}[broken]
    with pytest.raises(ConfigError, match=rf"mine\.yml: {place}: .*{broken} cannot be read: .*{reason}"):
        experiment_from(written, source="mine.yml")
    assert recorded_experiment(written, "manifest.json").name == "x"
