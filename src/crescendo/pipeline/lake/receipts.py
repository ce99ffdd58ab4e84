"""Are the tables of a run those of its recording as it is now?

An analysis ends with a receipt, `RUN/analysis.json`: the fingerprint of what it read, and the tables it made. The
fingerprint covers the manifest and the hash of every part as found, so a recording that grew, was damaged or was
replaced has another one, and one that was merely copied has the same. Compares; computes no table.
"""

import hashlib

import msgspec
from msgspec import Struct

from crescendo.pipeline.source.ingest import LocatedRecording
from crescendo.pipeline.storage.locations import Location
from crescendo.record.summary import SUMMARY, TABLES_DIR, Summary

RECEIPT = "analysis.json"

TABLES_VERSION = 1
"""Raise it when a table changes: whatever was computed before is then computed again."""


class Receipt(Struct, frozen=True):
    """What an analysis read and what it made of it."""

    fingerprint: str
    full: bool  # whether everything was asked for
    tables: list[str]


def fingerprint(recording: LocatedRecording) -> str:
    """One short text for a recording: the same bytes, the same text, wherever they lie."""
    parts = sorted((part.path, part.rows, part.sha256) for part in recording.parts)
    damaged = sorted(recording.damaged.items())
    # What parts the manifest lists is told by the parts; where it is not sealed yet, journals tell.
    manifest = msgspec.structs.replace(recording.manifest, files=[])
    content = msgspec.json.encode((TABLES_VERSION, manifest, parts, damaged), order="deterministic")
    return hashlib.sha256(content).hexdigest()


def write_receipt(place: Location, recording: LocatedRecording, *, full: bool) -> None:
    tables = [name for name in place.names(TABLES_DIR) if not name.startswith(".")]
    receipt = Receipt(fingerprint(recording), full, tables)
    place.write(RECEIPT, msgspec.json.format(msgspec.json.encode(receipt), indent=1))


def current_receipt(place: Location, recording: LocatedRecording, *, full: bool) -> Receipt | None:
    """The receipt of an analysis that need not be done again; None when there is none, or it is of something else."""
    receipt = read_receipt(place)
    if receipt is None or summary_at(place) is None:
        return None
    complete = set(receipt.tables) <= set(place.names(TABLES_DIR)) and (receipt.full or not full)
    return receipt if complete and receipt.fingerprint == fingerprint(recording) else None


def read_receipt(place: Location) -> Receipt | None:
    content = place.read(RECEIPT)
    try:
        return None if content is None else msgspec.json.decode(content, type=Receipt)
    except msgspec.MsgspecError:
        return None


def summary_at(place: Location) -> Summary | None:
    """The summary of a run; None when there is none that this version can read."""
    content = place.read(SUMMARY)
    try:
        return None if content is None else msgspec.json.decode(content, type=Summary)
    except msgspec.MsgspecError:
        return None
