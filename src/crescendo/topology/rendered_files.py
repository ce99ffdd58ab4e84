"""How do rendered files get onto the disk?

Only their owner can read them, because they may hold passwords. A path outside of the directory is refused.
"""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from crescendo.model.errors import ConfigError


def write_files(directory: Path, files: Mapping[str, str]) -> Iterator[Path]:
    """Write the files and yield their paths."""
    for name, text in files.items():
        path = directory / name
        if not path.resolve().is_relative_to(directory.resolve()):
            raise ConfigError(f"{name}: this path leads out of {directory}")
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                os.fchmod(descriptor, 0o600)
                file.write(text)
        except OSError as err:
            raise ConfigError(f"{path} cannot be written: {err.strerror}") from err
        yield path
