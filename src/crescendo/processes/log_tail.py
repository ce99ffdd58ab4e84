"""What did a process log last?

Reads the end of a log file and nothing else. Never through a symbolic link, and never a pipe: the directory may belong
to the account of the process."""

import os
import re
import stat
from pathlib import Path
from typing import IO

_TAIL_BYTES, _TAIL_LINES, _TAIL_CHARS = 8192, 6, 800
_SEARCHED_BYTES = 1 << 17
_STAMP = re.compile(r"^[0-9-]{10}[T ][0-9:.,+]+ *")
"""The moment with which most programs begin a line, so that the same words are the same line."""
_COLOURS = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")


def last_log_lines(log: Path) -> str:
    """The last lines of a log, joined into one line; empty when the log cannot be read."""
    return " | ".join(log_tail(log)[-_TAIL_LINES:])[-_TAIL_CHARS:]


def last_log_lines_with(log: Path, wanted: re.Pattern[str]) -> str:
    """The last two different lines that say this, without their time; empty without any."""
    found = [_STAMP.sub("", line) for line in log_tail(log, _SEARCHED_BYTES) if wanted.search(line)]
    return " | ".join(list(dict.fromkeys(reversed(found)))[:2])[:_TAIL_CHARS]


def open_log(log: Path) -> IO[bytes]:
    """The log, for reading; OSError unless it is a regular file."""
    file = os.fdopen(os.open(log, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb")
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise FileNotFoundError(f"{log} is not a file")
    return file


def log_tail(log: Path, octets: int = _TAIL_BYTES) -> list[str]:
    """The lines at the end of a log, without empty ones; none when the log cannot be read."""
    try:
        with open_log(log) as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - octets))
            text = _COLOURS.sub("", file.read(octets).decode(errors="replace"))
    except OSError:
        return []
    return [line.strip() for line in text.splitlines() if line.strip()]
