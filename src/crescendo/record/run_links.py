"""Where is the last run, the last that passed, and the last that did not?

Symbolic links beside the recordings, as Maestro has them: `last`, `lastSuccessful`, `lastFailed`. Each is replaced in
one step, so it is never missing. Whatever looks for recordings in a directory skips them: see `is_recording`.
"""

import contextlib
import os
from pathlib import Path

from crescendo.model.verdict import Outcome
from crescendo.record.manifest import MANIFEST

LAST, LAST_SUCCESSFUL, LAST_FAILED = "last", "lastSuccessful", "lastFailed"
RUN_LINKS = (LAST, LAST_SUCCESSFUL, LAST_FAILED)


def link_run(run_dir: Path, outcome: Outcome | None) -> None:
    """Point the links at this run. A file system without symbolic links has none, and a name of a file stays a file."""
    names = [LAST]
    if outcome is not None:
        names.append(LAST_SUCCESSFUL if outcome is Outcome.PASS else LAST_FAILED)
    for name in names:
        link = run_dir.parent / name
        if link.exists() and not link.is_symlink():
            continue
        partial = run_dir.parent / f".{name}.{os.getpid()}"
        with contextlib.suppress(OSError):
            partial.symlink_to(run_dir.name, target_is_directory=True)
            partial.replace(link)
        partial.unlink(missing_ok=True)


def is_recording(path: Path) -> bool:
    """Whether this is a recording, and not a link such as `last` to one, which would count twice."""
    return not path.is_symlink() and (path / MANIFEST).is_file()


def target_of(run_dir: Path) -> Path:
    """The recording that a link such as `last` points at, beside it; a recording itself as it is."""
    return run_dir.parent / run_dir.readlink() if run_dir.is_symlink() else run_dir


def linked_runs(directory: Path) -> set[str]:
    """The names of the runs that links point at."""
    links = [directory / name for name in RUN_LINKS]
    return {os.readlink(link) for link in links if link.is_symlink()}
