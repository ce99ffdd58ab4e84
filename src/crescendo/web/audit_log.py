"""Who did what, and what was refused?

One line of JSON per change, sign-in and refusal, in a file that only the account of the server can read. Holds no body,
no cookie and no password.
"""

import os
import threading
import time
from pathlib import Path

from msgspec.json import decode, encode

_MAX_FIELD = 300
_SHOWN_BYTES = 256 * 1024


class AuditLog:
    """Appends to one file. Used from several threads."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()

    def write(self, *, who: str, client: str, method: str, path: str, status: int) -> None:
        entry = {
            "at_ns": time.time_ns(), "who": who[:_MAX_FIELD], "client": client[:_MAX_FIELD], "method": method[:20],
            "path": path[:_MAX_FIELD], "status": status,
        }  # fmt: skip
        line = encode(entry) + b"\n"
        with self._lock:
            descriptor = os.open(
                self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600
            )
            try:
                os.write(descriptor, line)
            finally:
                os.close(descriptor)

    def latest(self, count: int) -> list[dict[str, object]]:
        """The newest first."""
        try:
            with self._path.open("rb") as file:
                file.seek(max(0, self._path.stat().st_size - _SHOWN_BYTES))
                lines = file.read().splitlines()
        except OSError:
            return []
        entries = []
        for line in reversed(lines[-count:]):
            try:
                entries.append(decode(line, type=dict[str, object]))
            except ValueError:
                continue
        return entries
