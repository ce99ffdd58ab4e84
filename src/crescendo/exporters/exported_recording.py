"""Which recordings may be exported, and what did an export write?"""

from pathlib import Path

from crescendo.model.errors import ConfigError
from crescendo.record.reader import Recording, open_recording


def intact_recording(run_dir: Path) -> Recording:
    """The recording of a run, without damaged parts."""
    recording = open_recording(run_dir)
    if recording.damaged:
        path, fault = next(iter(recording.damaged.items()))
        raise ConfigError(f"{run_dir}: {path} {fault}; an export would not match the run")
    return recording


def files_below(out: Path) -> list[Path]:
    return sorted(path for path in out.rglob("*") if path.is_file())
