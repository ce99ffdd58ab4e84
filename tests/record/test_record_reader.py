"""Are only complete and undamaged parts read, and are the others named?"""

from pathlib import Path

import msgspec
import numpy as np
import pytest

from crescendo.model.errors import ConfigError
from crescendo.record.documents import write_atomically
from crescendo.record.manifest import (
    JOURNAL,
    MANIFEST,
    Manifest,
    PartRecord,
    State,
    read_manifest,
    write_manifest,
)
from crescendo.record.reader import journalled_parts, open_recording, recorded_messages
from crescendo.record.schema import SENT
from crescendo.record.writer import Recorder


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    """A sealed recording of three parts."""
    recorder = Recorder(tmp_path, "peer", part_rows=100, block_rows=100)
    numbers = np.arange(300, dtype=np.int64)
    recorder.append(SENT, 300, 1, numbers, 1, numbers, numbers, 32)
    recorder.close()
    manifest = Manifest(run="r", tag=1, experiment={"name": "x"}, command=["crescendo"], started_ns=5)
    sealed = msgspec.structs.replace(manifest, state=State.SEALED, files=list(journalled_parts(tmp_path)))
    write_manifest(tmp_path, sealed)
    return tmp_path


def test_a_sealed_recording_is_complete(run_dir: Path) -> None:
    recording = open_recording(run_dir)
    assert recording.manifest.state is State.SEALED
    assert (recording.rows(SENT), recording.damaged) == (300, {})
    assert [Path(file).name for file in recording.files(SENT)] == [f"peer-0000{n}.parquet" for n in range(3)]


@pytest.mark.parametrize(
    ("harm", "message"),
    [
        (lambda file: file.write_bytes(file.read_bytes()[:-1]), "bytes, not"),
        (lambda file: file.write_bytes(file.read_bytes()[:-1] + b"\x00"), "does not match its hash"),
        (lambda file: file.unlink(), "is missing"),
        (lambda file: (file.unlink(), file.mkdir()), ""),
    ],
)
def test_a_damaged_part_is_named_and_the_others_are_read(run_dir: Path, harm: object, message: str) -> None:
    assert callable(harm)
    harm(run_dir / "sent/peer-00001.parquet")
    recording = open_recording(run_dir)
    assert list(recording.damaged) == ["sent/peer-00001.parquet"]
    assert message in recording.damaged["sent/peer-00001.parquet"]
    assert recording.rows(SENT) == 200


def test_a_part_outside_the_recording_is_not_read(run_dir: Path) -> None:
    outside = run_dir.parent / "outside.parquet"
    outside.write_bytes((run_dir / "sent/peer-00000.parquet").read_bytes())
    part = next(journalled_parts(run_dir))
    manifest = read_manifest(run_dir)
    evil = msgspec.structs.replace(part, path="../outside.parquet")
    write_manifest(run_dir, msgspec.structs.replace(manifest, files=[evil]))
    recording = open_recording(run_dir)
    assert recording.damaged == {"../outside.parquet": "lies outside the recording"}
    assert recording.parts == []


@pytest.mark.parametrize("state", [State.INCOMPLETE, State.INTERRUPTED])
def test_an_unsealed_recording_is_read_from_its_journals(run_dir: Path, state: State) -> None:
    manifest = read_manifest(run_dir)
    write_manifest(run_dir, msgspec.structs.replace(manifest, state=state, files=[]))
    assert open_recording(run_dir).rows(SENT) == 300


def test_a_truncated_journal_line_is_a_part_that_was_never_finished(run_dir: Path) -> None:
    journal = run_dir / JOURNAL / "peer.jsonl"
    lines = journal.read_bytes().splitlines(keepends=True)
    for cut in (1, len(lines[2]) // 2, len(lines[2]) - 2):
        journal.write_bytes(b"".join(lines[:2]) + lines[2][:cut])
        assert [part.path for part in journalled_parts(run_dir)] == [f"sent/peer-0000{n}.parquet" for n in range(2)]


def test_a_manifest_reads_back_as_it_was_written(run_dir: Path) -> None:
    manifest = read_manifest(run_dir)
    assert manifest.files[0] == next(journalled_parts(run_dir))
    assert isinstance(manifest.files[0], PartRecord)
    write_manifest(run_dir, manifest)
    assert read_manifest(run_dir) == manifest


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "not a recording"),
        (b"", "cannot be read as a manifest"),
        (b'{"run": "r"}', "cannot be read as a manifest"),
        (b"[]", "cannot be read as a manifest"),
    ],
)
def test_a_directory_that_is_not_a_recording_is_reported_in_one_sentence(
    tmp_path: Path, content: bytes | None, message: str
) -> None:
    if content is not None:
        (tmp_path / MANIFEST).write_bytes(content)
    with pytest.raises(ConfigError, match=message):
        open_recording(tmp_path)


def test_a_format_of_another_version_is_rejected(run_dir: Path) -> None:
    manifest = read_manifest(run_dir)
    write_manifest(run_dir, msgspec.structs.replace(manifest, format=99))
    with pytest.raises(ConfigError, match="format 99"):
        read_manifest(run_dir)


def test_a_file_is_replaced_atomically(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file.json"
    write_atomically(path, b"old")

    def broken(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", broken)
    with pytest.raises(OSError, match="No space"):
        write_atomically(path, b"new")
    assert path.read_bytes() == b"old"


def test_the_messages_of_recordings_are_known_if_every_manifest_lists_its_parts(run_dir: Path) -> None:
    sealed = msgspec.structs.replace(
        read_manifest(run_dir),
        files=[PartRecord(f"{table}/0", table, "peer", rows, 1, "0") for table, rows in (("sent", 5), ("received", 7))],
    )
    assert recorded_messages([sealed, sealed]) == 14
    assert recorded_messages([sealed, msgspec.structs.replace(sealed, files=[])]) is None
