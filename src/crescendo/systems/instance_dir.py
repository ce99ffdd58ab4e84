"""What is in the directory of an instance?

Its files, which may hold secrets and are readable by their owner only, and data/, logs/ and tmp/, which every instance
has. It is created completely or not at all, and removed completely. Starts and stops nothing.
"""

import contextlib
import os
import shutil
import stat
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from crescendo.model.errors import ConfigError
from crescendo.systems.secret_forms import contains_secret, redact_file

MIN_FREE_BYTES = 50 * 10**6
"""With less free space, a broker may block its senders or exit at any moment."""

LOGS, DATA, TEMPORARY = "logs", "data", "tmp"


def create_instance_dir(directory: Path, files: Mapping[str, str | bytes]) -> None:
    """Create the directory, which must not exist yet, and write the files."""
    try:
        directory.mkdir(mode=0o700, parents=True)
    except OSError as err:
        raise ConfigError(f"{directory} cannot be created: {err.strerror}; choose another directory") from err
    try:
        if free_bytes(directory) < MIN_FREE_BYTES:
            shortage = f"{free_bytes(directory) / 1e6:.0f} MB left, and a system needs {MIN_FREE_BYTES / 1e6:.0f} MB"
            raise ConfigError(
                f"the disk of {directory} is full: {shortage}; free some space, or choose another directory"
            )
        for name in (LOGS, DATA, TEMPORARY):
            (directory / name).mkdir(mode=0o700)
        for name, content in files.items():
            _write(directory / name, content)
    except OSError as err:
        remove_instance_dir(directory)
        raise ConfigError(f"{directory} cannot be written: {err.strerror}; choose another directory") from err
    except BaseException:
        remove_instance_dir(directory)
        raise


def create_outside_dir(pointer: Path) -> Path:
    """A new directory that other accounts can reach, but in which only we can create anything. Its path is noted."""
    directory = Path(tempfile.mkdtemp(prefix="crescendo-"))
    directory.chmod(0o711)
    _write(pointer, str(directory))
    return directory


def log_of(directory: Path, launch: str) -> Path:
    """The log file of one process of the instance."""
    return directory / LOGS / f"{launch}.log"


def move_logs(directory: Path, target: Path, forms: Sequence[str]) -> None:
    """Keep the logs that are not empty, without secrets in any of these forms."""
    with contextlib.suppress(OSError):  # failing to keep a log must not fail a run that is over
        for log in sorted((directory / LOGS).iterdir()):
            status = log.lstat()
            if not stat.S_ISREG(status.st_mode) or not status.st_size:
                continue
            target.mkdir(parents=True, exist_ok=True)
            if contains_secret(log, forms):
                redact_file(log, target / log.name, forms)
            else:
                shutil.move(log, target / log.name)
                os.chown(target / log.name, os.geteuid(), os.getegid())  # not that of an account which may be reused


def remove_instance_dir(directory: Path) -> None:
    """Remove the directory; ConfigError when that is not possible."""
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
            parent.mkdir(mode=0o700)  # one by one: with parents=True the mode would not apply to the parents
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(content.encode() if isinstance(content, str) else content)
