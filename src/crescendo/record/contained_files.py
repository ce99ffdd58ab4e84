"""Is a file one of the recording's own?

A recording may come from anybody. What it names is opened only if it is a regular file inside its directory, after all
symbolic links: never a path that leads out, a FIFO that would block, or a device. Opens nothing itself, except to read
small files within a limit.
"""

import stat
from pathlib import Path

from crescendo.model.errors import ConfigError
from crescendo.model.regular_file import read_regular

OUTSIDE = "lies outside the recording"
MISSING = "is missing"
NOT_REGULAR = "is not a regular file"


def path_fault(path: str) -> str:
    """What is wrong with the path of a file in a recording, judged by its text alone."""
    names = path.split("/")
    return OUTSIDE if "\0" in path or any(name in {"", ".", ".."} for name in names) else ""


def file_fault(run_dir: Path, path: str) -> str:
    """What is wrong with a file of a recording; empty if it can be opened."""
    if fault := path_fault(path):
        return fault
    try:
        file = (run_dir / path).resolve(strict=True)
        if not file.is_relative_to(run_dir.resolve()):
            return OUTSIDE
        return "" if stat.S_ISREG(file.stat().st_mode) else NOT_REGULAR
    except (FileNotFoundError, NotADirectoryError):
        return MISSING
    except (OSError, RuntimeError) as err:  # a loop of symbolic links is a RuntimeError before Python 3.13
        return f"cannot be read: {getattr(err, 'strerror', None) or err}"


def read_contained(run_dir: Path, path: str, max_bytes: int) -> bytes:
    """The content of a small file of a recording. FileNotFoundError if there is none, ConfigError if it is foreign."""
    fault = file_fault(run_dir, path)
    if fault == MISSING:
        raise FileNotFoundError(run_dir / path)
    if fault:
        raise ConfigError(f"{run_dir / path}: {fault}")
    return read_regular(run_dir / path, max_bytes)


def contained_files(folder: Path, pattern: str, run_dir: Path) -> list[Path]:
    """The files of a folder of a recording, sorted by name. ConfigError if one of them is not its own."""
    files = sorted(folder.glob(pattern))
    for file in files:
        if fault := file_fault(run_dir, file.relative_to(run_dir).as_posix()):
            raise ConfigError(f"{file}: {fault}")
    return files
