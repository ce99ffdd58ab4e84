"""Do the tables of a run match its recording as it is now?

An analysis ends with a receipt, `RUN/analysis.json`: the fingerprint of its input and the tables it wrote. The
fingerprint covers the manifest and the hash of every part as found. A recording that grew, was damaged or was replaced
has a different fingerprint; a copy has the same. Compares; computes no table.
"""

import hashlib
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from crescendo.model.plugins import TABLES, plugins
from crescendo.pipeline.source.ingest import LocatedRecording
from crescendo.pipeline.storage.locations import Location
from crescendo.record.documents import decode_or_none, encode_document
from crescendo.record.summary import SUMMARY, TABLES_DIR, Summary
from crescendo.record.tables import TABLES_VERSION

RECEIPT = "analysis.json"


class Receipt(Struct, frozen=True):
    """What an analysis read and which tables it wrote."""

    fingerprint: str
    full: bool  # whether `--full` was given
    tables: list[Annotated[str, Meta(pattern=r"\A[A-Za-z0-9][A-Za-z0-9_-]{0,99}\Z")]]  # names, never paths


def fingerprint(recording: LocatedRecording) -> str:
    """A hash of a recording's content, independent of its location."""
    parts = sorted((part.path, part.rows, part.sha256) for part in recording.parts)
    damaged = sorted(recording.damaged.items())
    # The parts are hashed separately: a manifest lists them only when it is sealed; until then journals do.
    manifest = msgspec.structs.replace(recording.manifest, files=[])
    # A run is computed again when a package that offers tables is installed, updated or removed.
    offered = sorted((plugin.name, plugin.package) for plugin in plugins(TABLES).values())
    tables = (TABLES_VERSION, *([offered] if offered else []))
    content = msgspec.json.encode((*tables, manifest, parts, damaged), order="deterministic")
    return hashlib.sha256(content).hexdigest()


def write_receipt(location: Location, recording: LocatedRecording, *, full: bool) -> None:
    tables = [name for name in location.names(TABLES_DIR) if not name.startswith(".")]
    receipt = Receipt(fingerprint(recording), full, tables)
    location.write(RECEIPT, encode_document(receipt))


def current_receipt(location: Location, recording: LocatedRecording, *, full: bool) -> Receipt | None:
    """The receipt, if it still matches the recording and no new analysis is needed; otherwise None."""
    receipt = read_receipt(location)
    if receipt is None or summary_at(location) is None:
        return None
    complete = set(receipt.tables) <= set(location.names(TABLES_DIR)) and (receipt.full or not full)
    return receipt if complete and receipt.fingerprint == fingerprint(recording) else None


def read_receipt(location: Location) -> Receipt | None:
    return decode_or_none(location.read(RECEIPT), Receipt)


def summary_at(location: Location) -> Summary | None:
    """The summary of a run; None if there is none that this version can read."""
    return decode_or_none(location.read(SUMMARY), Summary)
