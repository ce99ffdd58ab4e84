"""Who may write a lake now?

One process at a time: two builds would remove each other's drafts, and a copy made meanwhile would miss half of a run.
The kernel releases the lock however the process ends. Lakes at URLs have none.
"""

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from crescendo.model.errors import ConfigError

_LOCK = ".lock"


@contextmanager
def exclusive(lake: Path) -> Iterator[None]:
    """Hold the lake at a directory; raises ConfigError while another process does."""
    with (lake / _LOCK).open("wb") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ConfigError(
                f"--lake {lake}: another analysis is writing it; wait for it, or choose another lake"
            ) from None
        yield
