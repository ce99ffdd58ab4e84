"""What happens when a page cannot be written?

The numbers it shows are on disk already, so nothing is lost but the page: one sentence says why, and how to get it.
Renders nothing.
"""

from pathlib import Path

from crescendo.model.errors import LostError
from crescendo.record.documents import write_atomically


def write_page(path: Path, page: str, *, cure: str = "free the disk, or choose another place") -> None:
    """Write a page, whole or not at all. LostError if there is no room for it, or no permission."""
    try:
        write_atomically(path, page.encode())
    except OSError as err:
        raise LostError(f"the page {path} was not written: {err.strerror}; {cure}") from err
