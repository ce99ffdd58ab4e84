"""Did live tables use this machine's CPU during the measurement?

A watcher writes a note into the recording; the process that runs the experiment moves it into the manifest, as a fact
about the host. A watcher on another machine, or of a run that has ended, disturbs nothing and writes no note. Only the
process that runs the experiment writes the manifest. Knows nothing about Spark.
"""

import socket
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from crescendo.model.errors import ConfigError
from crescendo.record.manifest import Manifest, State, read_manifest, write_atomically, write_manifest

OBSERVED = "observed"
NOTE = "observed.txt"


def has_ended(manifest: Manifest) -> bool:
    """Whether the run is over. An incomplete recording lists its peers once the run has ended."""
    return manifest.state is not State.INCOMPLETE or bool(manifest.peers)


def write_note(run_dir: Path, manifest: Manifest, cores: int) -> None:
    """Record that the run is watched, if that can affect the measurement."""
    if not has_ended(manifest) and manifest.host.get("name") == socket.gethostname():
        since = datetime.now(UTC).strftime("%H:%M:%S UTC")
        try:
            write_atomically(run_dir / NOTE, f"by live tables, on {cores} of the cores, since {since}".encode())
        except OSError as err:
            raise ConfigError(
                f"{run_dir}: cannot be marked as observed: {err.strerror}; watch as a user who may write there"
            ) from err


def move_note_to_manifest(run_dir: Path) -> None:
    """Move the note, if there is one, into the manifest."""
    try:
        note = (run_dir / NOTE).read_text(encoding="utf-8")
    except FileNotFoundError:
        return
    manifest = read_manifest(run_dir)
    write_manifest(run_dir, msgspec.structs.replace(manifest, host=manifest.host | {OBSERVED: note}))
    (run_dir / NOTE).unlink(missing_ok=True)
