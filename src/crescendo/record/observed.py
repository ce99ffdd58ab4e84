"""Did live tables use this machine's CPU during the measurement?

A watcher that may disturb a run writes `observed.json` beside the manifest; the report shows it as a fact about the
host. A watcher on another machine, or of a run that has ended, disturbs nothing and writes nothing. The manifest itself
is written only by the process that runs the experiment, and never after it was sealed. Knows nothing about Spark.
"""

import socket
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from msgspec import Struct

from crescendo.model.errors import ConfigError
from crescendo.record.contained_files import read_contained
from crescendo.record.documents import MAX_DOCUMENT_BYTES, decode_or_none, write_document
from crescendo.record.manifest import Manifest, State

OBSERVED = "observed"
"""The fact about the host. Recordings of version 0.1 have it in their manifest."""

OBSERVED_FILE = "observed.json"


class Observation(Struct, frozen=True):
    """What a watcher did while the run was in progress."""

    note: str
    format: int = 1


def has_ended(manifest: Manifest) -> bool:
    """Whether the run is over. An incomplete recording lists its peers once the run has ended."""
    return manifest.state is not State.INCOMPLETE or bool(manifest.peers)


def write_observation(run_dir: Path, manifest: Manifest, cores: int) -> None:
    """Record that the run is watched, if that can affect the measurement."""
    if not has_ended(manifest) and manifest.host.get("name") == socket.gethostname():
        since = datetime.now(UTC).strftime("%H:%M:%S UTC")
        note = f"by live tables, on {cores} of the cores, since {since}"
        try:
            write_document(run_dir / OBSERVED_FILE, Observation(note))
        except OSError as err:
            raise ConfigError(
                f"{run_dir}: cannot be marked as observed: {err.strerror}; watch as a user who may write there"
            ) from err


def host_facts(manifest: Manifest, content: bytes | None) -> dict[str, Any]:
    """The facts about the host: those of the manifest, and the content of the file beside it, if there is one."""
    observation = decode_or_none(content, Observation)
    return manifest.host if observation is None else manifest.host | {OBSERVED: observation.note}


def host_facts_of(run_dir: Path, manifest: Manifest) -> dict[str, Any]:
    try:
        content = read_contained(run_dir, OBSERVED_FILE, MAX_DOCUMENT_BYTES)
    except OSError:
        content = None
    return host_facts(manifest, content)
