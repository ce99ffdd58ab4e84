"""Which command has the operator written into the command file?

The file is polled; when it has changed since the last poll, its first line is the command. Content from before the
broker started does not count: yesterday's `shutdown` must not end today's broker. Executes nothing.
"""

from pathlib import Path

SHUTDOWN = "shutdown"
LOG_STACK_TRACE = "logstacktrace"
LOG_MEMORY = "logmemory"
COMMANDS = (SHUTDOWN, LOG_STACK_TRACE, LOG_MEMORY)
_MAX_BYTES = 256


class CommandFile:
    """A polled file. It need not exist."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._last_state = self._state()

    def poll(self) -> str | None:
        """The first line written since the last poll, valid command or not; None when nothing is new."""
        state = self._state()
        if state == self._last_state:
            return None
        self._last_state = state
        if state is None:
            return None
        try:
            with self.path.open("rb") as file:
                lines = file.read(_MAX_BYTES).decode(errors="replace").split("\n")
        except OSError:
            return None
        return lines[0].strip().lower() or None

    def _state(self) -> tuple[int, int, int] | None:
        try:
            status = self.path.stat()
        except OSError:
            return None
        return status.st_ino, status.st_mtime_ns, status.st_size
