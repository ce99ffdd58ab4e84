"""What did a process write last?

Reads the end of a log file, and only that."""

import re
from pathlib import Path

_LAST_WORDS_BYTES, _LAST_WORDS_LINES, _LAST_WORDS_CHARS = 8192, 6, 800


_COLOURS = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")


def last_log_lines(log: Path) -> str:
    """The last lines that a process has written, as one line."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - _LAST_WORDS_BYTES))
            text = _COLOURS.sub("", file.read(_LAST_WORDS_BYTES).decode(errors="replace"))
    except OSError:
        return ""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return " | ".join(lines[-_LAST_WORDS_LINES:])[-_LAST_WORDS_CHARS:]
