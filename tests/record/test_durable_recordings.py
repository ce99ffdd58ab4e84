"""A recording that says sealed is whole, whenever the power fails."""

import random
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from crash_states import Watched
from crescendo.control.conductor.commands import PeerEnding, RunEnding
from crescendo.control.notes import Identity
from crescendo.record.inputs import keep_inputs
from crescendo.record.manifest import JOURNAL, MANIFEST, Clock, Manifest, State, read_manifest, write_manifest
from crescendo.record.reader import journalled_parts, open_recording
from crescendo.record.schema import EVENTS, SENT, SETTLED
from crescendo.record.writer import Recorder
from crescendo.run.execute import new_run_dir
from crescendo.run.sealed_manifest import seal_run

RUN = "run"
SEALED = b'"state": "sealed"'
LINES = b"one\ntwo\n"
ROWS = 3002


def write_run(root: Path, lines: Path, *, durable: bool = True) -> None:
    """What a conductor and a peer do, in their order, by the functions that they call."""
    run_dir = new_run_dir(root, RUN)
    inputs = keep_inputs(run_dir, [str(lines)], durable=durable)
    manifest = Manifest(run_dir.name, 1, {}, [], 0, clocks=[Clock("here", 0)], inputs=inputs)
    write_manifest(run_dir, manifest, durable=durable)
    recorder = Recorder(run_dir, "sender-0", part_rows=2000, block_rows=1000, durable=durable)
    for start in range(0, 3000, 500):
        recorder.append(SENT, 500, 0, range(start, start + 500), 1, 0, np.arange(500) + start, 100)
    recorder.append(SETTLED, 1, 0, 0, 2999, 0, 1, 1)
    recorder.close()
    recorder = Recorder(run_dir, "conductor", durable=durable)
    recorder.append(EVENTS, 1, 0, "conductor", "start", "{}")
    recorder.close()
    peer = PeerEnding("sender-0", "sender", Identity("sender-0", "sender", "here", 7, 1), None, "finished", "", None)
    ending = RunEnding("sealed", "", "after barrier", None, 0, (("measure", 0, 1),), (peer,))
    seal_run(run_dir, manifest, ending, durable)


def fault_of(root: Path) -> str:
    """What is wrong with a run that says sealed; empty if nothing is, or it does not say so."""
    manifests = list(root.glob(f"*/{MANIFEST}"))
    if not manifests:
        return ""
    run_dir = manifests[0].parent
    try:
        manifest = read_manifest(run_dir)
    except Exception as err:
        return f"the manifest cannot be read: {err}"
    if manifest.state is not State.SEALED:
        return ""
    recording = open_recording(run_dir)
    if recording.damaged or sum(part.rows for part in recording.parts) != ROWS:
        return f"damaged: {recording.damaged}"
    if not (run_dir / JOURNAL).is_dir() or {part.path for part in journalled_parts(run_dir)} != {
        part.path for part in manifest.files
    }:
        return "a journal is not complete"
    copies = [run_dir / item.kept for item in manifest.inputs]
    if [copy.read_bytes() if copy.exists() else b"" for copy in copies] != [LINES]:
        return "an input is not there"
    return ""


def faults(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dropped: Callable[[Path], bool] | None = None) -> set[str]:
    """Write a run and cut the power after every sync and rename. The syncs of `dropped` paths do nothing."""
    root, states, lines = tmp_path / "disk", tmp_path / "states", tmp_path / "lines.txt"
    root.mkdir()
    lines.write_bytes(LINES)
    found: set[str] = set()
    choose = random.Random(5)

    def cut(*, ended: bool = False) -> None:
        if not any(SEALED in content for content in watched.disk.files.values()):
            return  # no state can say sealed yet
        for state in watched.disk.power_cuts(states, choose):
            if found:
                break  # one is enough
            found.update(filter(None, [fault_of(state)]))
            if ended and not any(SEALED in path.read_bytes() for path in state.glob(f"*/{MANIFEST}")):
                found.add("the sealed run is gone")
        shutil.rmtree(states)

    watched = Watched(monkeypatch, root, dropped or (lambda path: False))
    watched.after = cut
    write_run(root, lines)
    cut(ended=True)
    assert len(watched.syncs) > 10
    assert dropped or not watched.disk.left_out, "every state was looked at"
    return found


def test_a_sealed_run_is_whole_after_any_power_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert faults(tmp_path, monkeypatch) == set()


@pytest.mark.parametrize(
    "dropped",
    [
        "sent/*.tmp",
        "sent",
        "events",
        "journal/sender-0.jsonl",
        "journal/conductor.jsonl",
        "journal",
        "inputs/*",
        "inputs",
        "manifest.json.tmp",
        f"{RUN}-*",
        "disk",
    ],
)
def test_no_sync_may_be_left_out(dropped: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert faults(tmp_path, monkeypatch, lambda path: path.match(dropped)) != set()


def test_a_run_that_need_not_last_waits_for_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root, lines = tmp_path / "disk", tmp_path / "lines.txt"
    root.mkdir()
    lines.write_bytes(LINES)
    watched = Watched(monkeypatch, root, lambda path: False)
    write_run(root, lines, durable=False)
    assert watched.syncs == []
    assert fault_of(root) == ""
