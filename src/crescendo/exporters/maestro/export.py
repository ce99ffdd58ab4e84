"""How is a recording exported for the tools of Maestro?

As its report directory: ROLE/success or failed/NUMBER/PEER/, with the files that Maestro's peers write. Everything is
written into a hidden directory next to the target and renamed when complete. Success means a verdict of pass; an
invalid run is a failure. Computes no results: counts are those of the raw parts.
"""

import csv
import re
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from itertools import product
from pathlib import Path

from crescendo.exporters.export_window import ExportWindow, window_of
from crescendo.exporters.exported_recording import files_below, intact_recording
from crescendo.exporters.maestro.latency import write_latency
from crescendo.exporters.maestro.properties_files import inspector_properties, load_properties, write_properties
from crescendo.exporters.maestro.rates import RECEIVER, TABLES, check_length, write_rates
from crescendo.exporters.maestro.readings import Attributes, entity_readings, last_texts
from crescendo.exporters.maestro.sheets import SHEETS
from crescendo.model.experiment import Experiment
from crescendo.model.verdict import Outcome
from crescendo.record.manifest import PeerRecord
from crescendo.record.new_directory import new_directory
from crescendo.record.reader import Recording
from crescendo.record.recorded_experiment import experiment_of
from crescendo.record.schema import EVENTS, READINGS, RECEIVED
from crescendo.record.summary import read_summary

INSPECTOR = "inspector"
_MAX_NAME_CHARS = 200
_NUMBER = "0"  # of the test: an export holds one test


def export_maestro(run_dir: Path, out: Path) -> list[Path]:
    """Export an analysed run; returns the files. Raises ConfigError if `out` is not empty."""
    summary, recording = read_summary(run_dir), intact_recording(run_dir)
    experiment = experiment_of(recording.manifest)
    peers = recording.manifest.peers
    check_length([window_of(recording, peer) for peer in peers if peer.role in TABLES])
    outcome = "success" if summary.verdict.outcome is Outcome.PASS else "failed"
    with new_directory(out) as draft:
        for peer, name in zip(peers, _folder_names(peers), strict=True):
            folder = draft / peer.role.value / outcome / _NUMBER / name
            folder.mkdir(parents=True)
            _export_peer(recording, experiment, peer, folder)
    return files_below(out)


def _folder_names(peers: Sequence[PeerRecord]) -> list[str]:
    """A folder for each peer. Peers of imports are named after files, and a recording may come from anybody."""
    names: dict[str, None] = {}
    for number, peer in enumerate(peers):
        name = re.sub(r"[^A-Za-z0-9._-]", "_", peer.id)[:_MAX_NAME_CHARS]
        name = name if name.strip(".") else f"_{name}"  # . and .. are not names
        names[name if name not in names else f"{name}-{number}"] = None
    return list(names)


def _export_peer(recording: Recording, experiment: Experiment, peer: PeerRecord, folder: Path) -> None:
    window = window_of(recording, peer)
    write_properties(folder / "test.properties", load_properties(recording.manifest, experiment, peer, window))
    if peer.role in TABLES:
        write_rates(folder / f"{peer.role}.dat", peer.role, _parts(recording, TABLES[peer.role], peer), window)
    if peer.role == RECEIVER:
        write_latency(folder / "receiverd-latency.hdr", _parts(recording, RECEIVED, peer), window)
    if peer.role == INSPECTOR:
        numbers = _write_sheets(recording, peer, window, folder)
        texts = last_texts(_parts(recording, EVENTS, peer), peer.id)
        write_properties(folder / "inspector.properties", inspector_properties(recording.manifest, texts, numbers))


def _write_sheets(recording: Recording, peer: PeerRecord, window: ExportWindow, folder: Path) -> dict[str, Attributes]:
    """Write the sheets that have rows, for all inspections of the run; returns the last readings."""
    last: dict[str, Attributes] = {}
    with ExitStack() as stack:
        write_row: dict[str, Callable[[list[str]], object]] = {}
        for readings in entity_readings(_parts(recording, READINGS, peer), _parts(recording, EVENTS, peer), peer.id):
            last = readings.entities
            for sheet, (entity, attributes) in product(SHEETS, readings.entities.items()):
                cells = sheet.cells(entity, attributes)
                if cells is None:
                    continue
                if sheet.file not in write_row:
                    file = stack.enter_context((folder / sheet.file).open("w", encoding="utf-8", newline=""))
                    write_row[sheet.file] = csv.writer(file, lineterminator="\n").writerow
                    write_row[sheet.file](sheet.header)
                write_row[sheet.file]([window.stamp(readings.t_ns), *cells])
    return last


def _parts(recording: Recording, table: str, peer: PeerRecord) -> list[str]:
    """The parts of a table that one peer wrote, in writing order."""
    mine = [part for part in recording.parts if part.table == table and part.peer == peer.id]
    return [str(recording.path / part.path) for part in mine]
