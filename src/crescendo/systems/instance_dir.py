"""What lies in the directory of an instance?

Its files, which may hold secrets and are for our eyes only, and data/, logs/ and tmp/, which every instance has. It is
made whole or not at all, and removed whole. Starts and stops nothing.
"""

import contextlib
import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from crescendo.model.errors import ConfigError

MIN_FREE_BYTES = 50 * 10**6
"""With less than this a broker stops taking messages, or ends, at a time of its own choice."""

LOGS, DATA, TEMPORARY = "logs", "data", "tmp"


def create_instance_dir(directory: Path, files: Mapping[str, str | bytes]) -> None:
    """Make the directory, which must not be there yet, and write the files."""
    try:
        directory.mkdir(mode=0o700, parents=True)
    except OSError as err:
        raise ConfigError(f"{directory} cannot be created: {err.strerror}; choose another place") from err
    try:
        if free_bytes(directory) < MIN_FREE_BYTES:
            left = f"{free_bytes(directory) / 1e6:.0f} MB left, and a system needs {MIN_FREE_BYTES / 1e6:.0f} MB"
            raise ConfigError(f"the disk of {directory} is full: {left}; make room, or choose another place")
        for name in (LOGS, DATA, TEMPORARY):
            (directory / name).mkdir(mode=0o700)
        for name, content in files.items():
            _write(directory / name, content)
    except OSError as err:
        remove_instance_dir(directory)
        raise ConfigError(f"{directory} cannot be written: {err.strerror}; choose another place") from err
    except BaseException:
        remove_instance_dir(directory)
        raise


def log_of(directory: Path, launch: str) -> Path:
    """Where a process of the instance writes what it has to say."""
    return directory / LOGS / f"{launch}.log"


def move_logs(directory: Path, target: Path) -> None:
    """Keep what was said; a process that said nothing needs no file."""
    with contextlib.suppress(OSError):  # a log that cannot be kept is no reason to fail what is over
        for log in sorted((directory / LOGS).iterdir()):
            if log.is_file() and log.stat().st_size:
                target.mkdir(parents=True, exist_ok=True)
                shutil.move(log, target / log.name)


def remove_instance_dir(directory: Path) -> None:
    """Take the directory away, and say so when that is not possible."""
    try:
        shutil.rmtree(directory)
    except FileNotFoundError:
        return
    except OSError as err:
        raise ConfigError(f"{directory} cannot be removed: {err.strerror}; remove it by hand") from err


def free_bytes(directory: Path) -> int:
    return shutil.disk_usage(directory).free


def _write(path: Path, content: str | bytes) -> None:
    for parent in reversed(path.parents):
        if not parent.exists():
            parent.mkdir(mode=0o700)  # one by one, because the mode is not for parents that are made along the way
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(content.encode() if isinstance(content, str) else content)
