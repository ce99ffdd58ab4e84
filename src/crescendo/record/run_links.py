"""Where is the last run, the last that passed, and the last that did not?

Symbolic links beside the recordings, as Maestro has them: `last`, `lastSuccessful`, `lastFailed`. Each is replaced in
one step, so it is never missing. Whatever looks for recordings in a directory skips them.
"""

import contextlib
import os
from pathlib import Path

from crescendo.model.verdict import Outcome

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


def linked_runs(directory: Path) -> set[str]:
    """The names of the runs that links point at."""
    links = [directory / name for name in RUN_LINKS]
    return {os.readlink(link) for link in links if link.is_symlink()}
