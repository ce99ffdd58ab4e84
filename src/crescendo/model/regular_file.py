"""How is a file read that somebody else named?

Only if it is a regular file, and only up to a limit: opening a FIFO would wait for a writer, a device may never end,
and either may stand where a recording or an experiment names a file. Follows symbolic links; whether a link may lead
there is for the caller to say.
"""

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO


def open_regular(path: Path) -> BinaryIO:
    """Open a regular file for reading. Raises OSError for anything else, without waiting."""
    _check(path, os.stat(path))
    # Again after opening, because the file may have been replaced; until then nothing may block.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    try:
        _check(path, os.fstat(descriptor))
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def read_regular(path: Path, max_bytes: int) -> bytes:
    """The content of a regular file of at most `max_bytes`."""
    with open_regular(path) as file:
        if os.fstat(file.fileno()).st_size > max_bytes:
            raise OSError(errno.EFBIG, f"it is larger than {max_bytes:,} bytes", str(path))
        return file.read(max_bytes)


def _check(path: Path, status: os.stat_result) -> None:
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "it is not a regular file", str(path))
