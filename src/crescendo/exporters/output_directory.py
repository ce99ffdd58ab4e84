"""Where does an export go, and may this recording be exported?"""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa

from crescendo.model.errors import ConfigError
from crescendo.record.reader import Recording, open_recording


def intact_recording(run_dir: Path) -> Recording:
    """The recording of a run, without damaged parts."""
    recording = open_recording(run_dir)
    if recording.damaged:
        path, fault = next(iter(recording.damaged.items()))
        raise ConfigError(f"{run_dir}: {path} {fault}; an export would not match the run")
    return recording


@contextmanager
def published(out: Path) -> Iterator[Path]:
    """A directory that appears under its name complete or not at all."""
    draft = out.parent / f".{out.name}.tmp"
    try:
        if out.exists() and (not out.is_dir() or any(out.iterdir())):
            raise ConfigError(f"{out}: exists and is not empty; choose another --out")
        shutil.rmtree(draft, ignore_errors=True)
        draft.mkdir(parents=True)
        yield draft
        draft.rename(out)
    except (OSError, pa.ArrowException) as err:
        raise ConfigError(f"{out}: cannot be written: {getattr(err, 'strerror', None) or err}") from err
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def files_below(out: Path) -> list[Path]:
    return sorted(path for path in out.rglob("*") if path.is_file())
