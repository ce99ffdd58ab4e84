"""How is a secret read from a file?

It is the first line: an editor or `echo` adds the end of line. An error names the file, and quotes nothing of it.
"""

from pathlib import Path
from typing import TextIO

from crescendo.model.errors import ConfigError

_MAX_CHARS = 64 * 1024


def read_secret_file(place: str, file: str | Path) -> str:
    """The first line of a file. An error begins with the place where it was named."""
    try:
        with Path(file).open(encoding="utf-8") as opened:
            return first_line(place, opened)
    except (OSError, UnicodeDecodeError) as err:
        reason = err.strerror if isinstance(err, OSError) else "it is not UTF-8"
        raise ConfigError(f"{place}: cannot be read: {reason}") from None


def first_line(place: str, opened: TextIO) -> str:
    """The first line of a file that is open."""
    if not (text := opened.readline(_MAX_CHARS).rstrip("\r\n")):
        raise ConfigError(f"{place}: the first line is empty")
    return text
