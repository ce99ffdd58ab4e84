"""A recording that says sealed is whole, whenever the power fails."""

import random
import shutil
from collections.abc import Callable
from pathlib import Path

import msgspec
import numpy as np
import pytest

from crash_states import Watched
from crescendo.record.manifest import JOURNAL, MANIFEST, Manifest, State, read_manifest, write_manifest
from crescendo.record.reader import journalled_parts, open_recording
from crescendo.record.schema import SENT, SETTLED
from crescendo.record.writer import Recorder

RUN = "run-1"
SEALED = b'"state": "sealed"'


def write_run(root: Path, *, durable: bool = True) -> None:
    """What a conductor and a peer do, in their order."""
    run_dir = root / RUN
    run_dir.mkdir()
    manifest = Manifest(RUN, 1, {}, [], 0)
    write_manifest(run_dir, manifest, durable=durable)
    recorder = Recorder(run_dir, "sender-0", part_rows=2000, block_rows=1000, durable=durable)
    for start in range(0, 3000, 500):
        recorder.append(SENT, 500, 0, range(start, start + 500), 1, 0, np.arange(500) + start, 100)
    recorder.append(SETTLED, 1, 0, 0, 2999, 0, 1, 1)
    recorder.close()
    parts = sorted(journalled_parts(run_dir), key=lambda part: part.path)
    sealed = msgspec.structs.replace(manifest, state=State.SEALED, files=parts)
    write_manifest(run_dir, sealed, durable=durable)


def fault_of(root: Path) -> str:
    """What is wrong with a run that says sealed; empty if nothing is, or it does not say so."""
    run_dir = root / RUN
    if not (run_dir / MANIFEST).exists():
        return ""
    try:
        manifest = read_manifest(run_dir)
    except Exception as err:
        return f"the manifest cannot be read: {err}"
    if manifest.state is not State.SEALED:
        return ""
    recording = open_recording(run_dir)
    if recording.damaged or sum(part.rows for part in recording.parts) != 3001:
        return f"damaged: {recording.damaged}"
    if not (run_dir / JOURNAL).is_dir() or {part.path for part in journalled_parts(run_dir)} != {
        part.path for part in manifest.files
    }:
        return "a journal is not complete"
    return ""


def faults(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dropped: Callable[[Path], bool] = lambda path: False
) -> set[str]:
    """Write a run and cut the power after every sync and rename. The syncs of `dropped` paths do nothing."""
    root, states = tmp_path / "disk", tmp_path / "states"
    root.mkdir()
    found: set[str] = set()
    choose = random.Random(5)

    def cut(*, ended: bool = False) -> None:
        if not any(SEALED in content for content in watched.disk.files.values()):
            return  # no state can say sealed yet
        if found - {""} and not ended:
            return
        for state in watched.disk.power_cuts(states, choose):
            found.add(fault_of(state))
            manifest = state / RUN / MANIFEST
            if ended and not (manifest.exists() and SEALED in manifest.read_bytes()):
                found.add("the sealed run is gone")
        shutil.rmtree(states)

    watched = Watched(monkeypatch, root, dropped)
    watched.after = cut
    write_run(root)
    cut(ended=True)
    assert len(watched.syncs) > 10
    return found - {""}


def test_a_sealed_run_is_whole_after_any_power_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert faults(tmp_path, monkeypatch) == set()


@pytest.mark.parametrize(
    "dropped", ["sent/*.tmp", "sent", "journal/*.jsonl", "journal", "manifest.json.tmp", RUN, "disk"]
)
def test_no_sync_may_be_left_out(dropped: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert faults(tmp_path, monkeypatch, lambda path: path.match(dropped)) != set()


def test_a_run_that_need_not_last_waits_for_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tmp_path / "disk"
    root.mkdir()
    watched = Watched(monkeypatch, root, lambda path: False)
    write_run(root, durable=False)
    assert watched.syncs == []
    assert fault_of(root) == ""
