"""How does a recording look to the tools of Maestro?

Its directory of reports: ROLE/success or failed/NUMBER/PEER/, with the files that Maestro's peers leave. Everything
is written into a hidden directory beside its place and renamed when it is complete. Success is a verdict of pass; a run
of which we cannot say is not one. Computes no result: counts are those of the raw parts.
"""

import csv
import re
import shutil
from collections.abc import Callable
from contextlib import ExitStack
from itertools import product
from pathlib import Path

from crescendo.exporters.maestro.latency import write_latency
from crescendo.exporters.maestro.properties import inspector_properties, load_properties, write_properties
from crescendo.exporters.maestro.rates import RECEIVER, TABLES, write_rates
from crescendo.exporters.maestro.readings import Attributes, sheet_rows, words_of
from crescendo.exporters.maestro.sheets import SHEETS
from crescendo.exporters.maestro.window import ExportWindow, window_of
from crescendo.model.errors import ConfigError
from crescendo.model.experiment import Experiment, experiment_from
from crescendo.model.verdict import Outcome
from crescendo.record.manifest import PeerRecord
from crescendo.record.reader import Recording, open_recording
from crescendo.record.schema import EVENTS, READINGS, RECEIVED
from crescendo.record.summary import read_summary

INSPECTOR = "inspector"
_NUMBER = "0"  # of the test; one export is one test


def export_maestro(run_dir: Path, out: Path) -> list[Path]:
    """Export an analysed run; returns the files. Raises ConfigError when `out` holds anything already."""
    summary, recording = read_summary(run_dir), open_recording(run_dir)
    if recording.damaged:
        path, fault = next(iter(recording.damaged.items()))
        raise ConfigError(f"{run_dir}: {path} {fault}; an export would be of something else than the run")
    experiment = experiment_from(recording.manifest.experiment, source=f"{run_dir}: experiment")
    outcome = "success" if summary.verdict.outcome is Outcome.PASS else "failed"
    draft = out.parent / f".{out.name}.tmp"
    try:
        if out.exists() and (not out.is_dir() or any(out.iterdir())):
            raise ConfigError(f"{out}: is there already and not empty; choose another --out")
        shutil.rmtree(draft, ignore_errors=True)
        draft.mkdir(parents=True)
        for peer in recording.manifest.peers:
            folder = draft / peer.role / outcome / _NUMBER / re.sub(r"[^A-Za-z0-9._-]", "_", peer.id)
            folder.mkdir(parents=True)
            _export_peer(recording, experiment, peer, folder)
        draft.rename(out)
    except OSError as err:
        raise ConfigError(f"{out}: cannot be written: {err.strerror or err}") from err
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return sorted(path for path in out.rglob("*") if path.is_file())


def _export_peer(recording: Recording, experiment: Experiment, peer: PeerRecord, folder: Path) -> None:
    window = window_of(recording, peer)
    write_properties(folder / "test.properties", load_properties(recording.manifest, experiment, peer, window))
    if peer.role in TABLES:
        write_rates(folder / f"{peer.role}.dat", peer.role, _parts(recording, TABLES[peer.role], peer), window)
    if peer.role == RECEIVER:
        write_latency(folder / "receiverd-latency.hdr", _parts(recording, RECEIVED, peer), window)
    if peer.role == INSPECTOR:
        numbers = _write_sheets(recording, peer, window, folder)
        words = words_of(_parts(recording, EVENTS, peer), peer.id)
        write_properties(folder / "inspector.properties", inspector_properties(recording.manifest, words, numbers))


def _write_sheets(recording: Recording, peer: PeerRecord, window: ExportWindow, folder: Path) -> dict[str, Attributes]:
    """Write the sheets that have rows, all looks of the run; returns what the last look showed."""
    last: dict[str, Attributes] = {}
    with ExitStack() as stack:
        rows: dict[str, Callable[[list[str]], object]] = {}
        for look in sheet_rows(_parts(recording, READINGS, peer), _parts(recording, EVENTS, peer), peer.id):
            last = look.entities
            for sheet, (entity, attributes) in product(SHEETS, look.entities.items()):
                cells = sheet.cells(entity, attributes)
                if cells is None:
                    continue
                if sheet.file not in rows:
                    file = stack.enter_context((folder / sheet.file).open("w", encoding="utf-8", newline=""))
                    rows[sheet.file] = csv.writer(file, lineterminator="\n").writerow
                    rows[sheet.file](sheet.header)
                rows[sheet.file]([window.stamp(look.t_ns), *cells])
    return last


def _parts(recording: Recording, table: str, peer: PeerRecord) -> list[str]:
    """The parts that one peer wrote of a table, in the order it wrote them."""
    mine = [part for part in recording.parts if part.table == table and part.peer == peer.id]
    return [str(recording.path / part.path) for part in mine]
