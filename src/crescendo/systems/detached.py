"""Which systems keep running after the command that started them, and where are they?

Each has a directory of its name under the state directory, with a record of its processes next to its files. The record
exists before the first process and is updated after each one. So `down` finds every process, even when the command that
started the system is killed. Decides nothing about kinds.
"""

import contextlib
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from crescendo.model.errors import ConfigError
from crescendo.model.suggestions import listing
from crescendo.processes.ending import end_all
from crescendo.processes.ref import ProcessRef, is_alive, process_ref
from crescendo.record.documents import write_atomically
from crescendo.systems.base import SystemKind
from crescendo.systems.instance import STOP_GRACE_S, RunningInstance, start
from crescendo.systems.instance_dir import LOGS, remove_instance_dir

_RECORD, _FILES = "instance.json", "files"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_MAX_PER_KIND = 100


class DetachedSystem(Struct, frozen=True):
    """The record of a detached system. Holds credentials: mode 0600."""

    name: str
    kind: str
    starter: ProcessRef
    token: str = ""
    processes: list[ProcessRef] = []
    outside_dirs: list[str] = []  # directories of it elsewhere
    serving: bool = False
    url: str = ""
    endpoints: dict[str, str] = {}
    facts: dict[str, Any] = {}

    @property
    def state(self) -> str:
        """up, dead (one of its processes has ended), starting, or unfinished (the starting command was killed)."""
        if not self.serving:
            return "starting" if is_alive(self.starter) else "unfinished"
        return "up" if all(is_alive(process) for process in self.processes) else "dead"


def state_directory() -> Path:
    """Where detached systems live: under the user's state directory."""
    if own := os.environ.get("CRESCENDO_STATE"):
        return Path(own).absolute() / "systems"
    base = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(base).absolute() / "crescendo" / "systems"


def up(
    kind: SystemKind,
    settings: Mapping[str, Any],
    *,
    name: str | None = None,
    home: Path | None = None,
    version: str | None = None,
    ports: Mapping[str, int] | None = None,
) -> DetachedSystem:
    """Start a system that keeps running when this process ends."""
    directory = _claim_directory(kind, name)
    record = DetachedSystem(directory.name, kind.name, process_ref("starter", os.getpid()))

    def record_processes(instance: RunningInstance) -> None:
        nonlocal record
        record = msgspec.structs.replace(
            record,
            token=instance.token,
            processes=list(instance.processes),
            outside_dirs=[str(path) for path in instance.outside_dirs],
        )
        _write(directory, record)

    try:
        _write(directory, record)
        instance = start(
            kind,
            settings,
            directory=directory / _FILES,
            home=home,
            version=version,
            ports=ports,
            on_launch=record_processes,
        )
        try:
            record = msgspec.structs.replace(
                record,
                serving=True,
                url=instance.url,
                endpoints=dict(instance.endpoints),
                facts=instance.facts,
            )
            _write(directory, record)
        except BaseException:
            instance.stop()
            raise
    except BaseException:
        remove_instance_dir(directory)
        raise
    return record


def names() -> list[str]:
    """Every name in use."""
    try:
        return sorted(path.name for path in state_directory().iterdir() if path.is_dir())
    except FileNotFoundError:
        return []
    except OSError as err:
        raise ConfigError(
            f"{state_directory()} cannot be read: {err.strerror}; name another with CRESCENDO_STATE"
        ) from err


def all_systems() -> list[DetachedSystem]:
    """The records of all detached systems, sorted by name."""
    return [record for name in names() if (record := find_system(name)) is not None]


def find_system(name: str) -> DetachedSystem | None:
    """The record of that name; None when there is none."""
    return _read(state_directory() / _checked_name(name))


def down(name: str) -> bool:
    """Stop the system and remove everything. False when there was nothing of that name."""
    directory = state_directory() / _checked_name(name)
    record = _read(directory)
    if record is not None:
        if record.state == "starting":
            raise ConfigError(f"{name} is being started by process {record.starter.pid}; wait for it, or interrupt it")
        if record.token:
            end_all(record.processes, record.token, STOP_GRACE_S)
        for outside in record.outside_dirs:
            remove_instance_dir(Path(outside))
    existed = directory.exists()
    remove_instance_dir(directory)
    return existed


def logs_of(name: str) -> Sequence[Path]:
    """The logs of its processes, most recently started first."""
    record = find_system(name)
    if record is None:
        raise unknown_system(name)
    directory = state_directory() / name / _FILES / LOGS
    return [directory / f"{process.name}.log" for process in reversed(record.processes)]


def unknown_system(name: str) -> ConfigError:
    """The complaint about a name that no system has."""
    known = [record.name for record in all_systems()]
    return ConfigError(f"no system is called {name!r}; {listing(name, known) if known else 'none is up'}")


def _claim_directory(kind: SystemKind, name: str | None) -> Path:
    """Create a directory of its own for the system. mkdir is atomic, so two commands cannot claim the same name."""
    base = state_directory()
    names = (
        [_checked_name(name)] if name else [kind.name, *(f"{kind.name}-{number}" for number in range(2, _MAX_PER_KIND))]
    )
    try:
        base.mkdir(mode=0o700, parents=True, exist_ok=True)
        for candidate in names:
            with contextlib.suppress(FileExistsError):
                (base / candidate).mkdir(mode=0o700)
                return base / candidate
    except OSError as err:
        raise ConfigError(f"{base} cannot be written: {err.strerror}; name another with CRESCENDO_STATE") from err
    if name:
        raise ConfigError(f"--name {name}: a system of that name exists; crescendo system down {name} stops it")
    raise ConfigError(f"{_MAX_PER_KIND} systems of the kind {kind.name} are up; crescendo system down --all stops them")


def _checked_name(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise ConfigError(f"{name!r} is not a valid system name; use letters, digits, - and _, at most 64")
    return name


def _write(directory: Path, record: DetachedSystem) -> None:
    """Write atomically: a reader never sees half a record."""
    try:
        write_atomically(directory / _RECORD, msgspec.json.encode(record), mode=0o600)
    except OSError as err:
        raise ConfigError(f"{directory} cannot be written: {err.strerror}; name another with CRESCENDO_STATE") from err


def _read(directory: Path) -> DetachedSystem | None:
    """The record; None when there is none, or none yet."""
    try:
        return msgspec.json.decode((directory / _RECORD).read_bytes(), type=DetachedSystem)
    except FileNotFoundError:
        return None
    except OSError as err:
        raise ConfigError(f"{directory / _RECORD} cannot be read: {err.strerror}") from err
    except msgspec.DecodeError as err:
        raise ConfigError(
            f"{directory / _RECORD} is damaged ({err}); end its processes by hand and remove {directory}"
        ) from err
