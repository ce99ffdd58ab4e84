"""How does a directory of results appear under its name, complete or not at all?

It is written into a hidden directory next to its place, and renamed.
"""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa

from crescendo.model.errors import ConfigError
from crescendo.record.durable import sync


def check_new(out: Path) -> None:
    """Reject a place that is taken; an empty directory may be there."""
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ConfigError(f"{out}: exists and is not empty; choose another --out")


@contextmanager
def new_directory(out: Path) -> Iterator[Path]:
    """The directory to write to. It is removed when an error ends the block."""
    place = out.absolute()
    draft = place.parent / f".{place.name}.tmp"
    try:
        check_new(out)
        shutil.rmtree(draft, ignore_errors=True)
        draft.mkdir(parents=True)
        yield draft
        draft.rename(place)
        sync(place.parent)
    except (OSError, pa.ArrowException) as err:
        raise ConfigError(f"{out}: cannot be written: {getattr(err, 'strerror', None) or err}") from err
    finally:
        shutil.rmtree(draft, ignore_errors=True)
