"""Which command has somebody written into the command file?

The file is looked at now and then; when it has changed since the last look, its first line is the command. What was in
it before the broker started does not count: yesterday's `shutdown` must not end today's broker. Carries nothing out.
"""

from pathlib import Path

SHUTDOWN = "shutdown"
LOG_STACK_TRACE = "logstacktrace"
LOG_MEMORY = "logmemory"
COMMANDS = (SHUTDOWN, LOG_STACK_TRACE, LOG_MEMORY)
_MAX_BYTES = 256


class CommandFile:
    """A file that is polled. It need not exist."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._seen = self._state()

    def look(self) -> str | None:
        """The word written since the last look, whether it is a command or not; None when nothing is new."""
        state = self._state()
        if state == self._seen:
            return None
        self._seen = state
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
