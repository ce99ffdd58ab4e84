"""What did a process log last?

Reads the end of a log file and nothing else."""

import re
from pathlib import Path

_TAIL_BYTES, _TAIL_LINES, _TAIL_CHARS = 8192, 6, 800
_COLOURS = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")


def last_log_lines(log: Path) -> str:
    """The last lines of a log, joined into one line; empty when the log cannot be read."""
    return " | ".join(log_tail(log)[-_TAIL_LINES:])[-_TAIL_CHARS:]


def log_tail(log: Path) -> list[str]:
    """The lines at the end of a log, without empty ones; none when the log cannot be read."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - _TAIL_BYTES))
            text = _COLOURS.sub("", file.read(_TAIL_BYTES).decode(errors="replace"))
    except OSError:
        return []
    return [line.strip() for line in text.splitlines() if line.strip()]
