"""Which systems did somebody start to stay, and where are they?

Each has a directory of its name under the state directory, with a record of its processes beside its files. The record
is there before the first process and follows every one, so that whatever happens to the command that starts a system,
`down` finds all of it. Decides nothing about kinds.
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
from crescendo.processes.ending import end_all
from crescendo.processes.ref import ProcessRef, is_alive, process_ref
from crescendo.systems.base import SystemKind
from crescendo.systems.instance import STOP_GRACE_S, RunningInstance, start
from crescendo.systems.instance_dir import LOGS, remove_instance_dir

_RECORD, _FILES = "instance.json", "files"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_MOST = 100


class DetachedSystem(Struct, frozen=True):
    """What is known of a standing system. Holds credentials: mode 0600."""

    name: str
    kind: str
    starter: ProcessRef
    token: str = ""
    processes: list[ProcessRef] = []
    serving: bool = False
    url: str = ""
    endpoints: dict[str, str] = {}
    facts: dict[str, Any] = {}

    @property
    def state(self) -> str:
        """up, dead (a process of it has ended), starting, or unfinished (who started it was ended meanwhile)."""
        if not self.serving:
            return "starting" if is_alive(self.starter) else "unfinished"
        return "up" if all(is_alive(process) for process in self.processes) else "dead"


def state_directory() -> Path:
    """Where standing systems live: the state directory of this person."""
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
    """Start a system that stays when we end."""
    place = _claim(kind, name)
    record = DetachedSystem(place.name, kind.name, process_ref("starter", os.getpid()))

    def remember(instance: RunningInstance) -> None:
        _write(place, msgspec.structs.replace(record, token=instance.token, processes=list(instance.processes)))

    try:
        _write(place, record)
        instance = start(
            kind, settings, directory=place / _FILES, home=home, version=version, ports=ports, on_launch=remember
        )
        try:
            record = msgspec.structs.replace(
                record,
                token=instance.token,
                processes=list(instance.processes),
                serving=True,
                url=instance.url,
                endpoints=dict(instance.endpoints),
                facts=instance.facts,
            )
            _write(place, record)
        except BaseException:
            instance.stop()
            raise
    except BaseException:
        remove_instance_dir(place)
        raise
    return record


def names() -> list[str]:
    """Every name that is taken."""
    try:
        return sorted(path.name for path in state_directory().iterdir() if path.is_dir())
    except FileNotFoundError:
        return []
    except OSError as err:
        raise ConfigError(
            f"{state_directory()} cannot be read: {err.strerror}; name another with CRESCENDO_STATE"
        ) from err


def standing() -> list[DetachedSystem]:
    """What is known of all of them, by name."""
    return [record for name in names() if (record := named(name)) is not None]


def named(name: str) -> DetachedSystem | None:
    """The one of that name, if there is one."""
    return _read(state_directory() / _checked(name))


def down(name: str) -> bool:
    """End it and leave nothing. False: there was nothing of that name."""
    place = state_directory() / _checked(name)
    record = _read(place)
    if record is not None:
        if record.state == "starting":
            raise ConfigError(f"{name} is being started by process {record.starter.pid}; wait for it, or interrupt it")
        if record.token:
            end_all(record.processes, record.token, STOP_GRACE_S)
    there = place.exists()
    remove_instance_dir(place)
    return there


def logs_of(name: str) -> Sequence[Path]:
    """The logs of its processes, the latest process first."""
    record = named(name)
    if record is None:
        known = ", ".join(other.name for other in standing()) or "none is up"
        raise ConfigError(f"no system is called {name}; known: {known}")
    directory = state_directory() / name / _FILES / LOGS
    return [directory / f"{process.name}.log" for process in reversed(record.processes)]


def _claim(kind: SystemKind, name: str | None) -> Path:
    """A directory that nobody else has. Making it is the claim, so two of us cannot get the same."""
    base = state_directory()
    names = [_checked(name)] if name else [kind.name, *(f"{kind.name}-{number}" for number in range(2, _MOST))]
    try:
        base.mkdir(mode=0o700, parents=True, exist_ok=True)
        for candidate in names:
            with contextlib.suppress(FileExistsError):
                (base / candidate).mkdir(mode=0o700)
                return base / candidate
    except OSError as err:
        raise ConfigError(f"{base} cannot be written: {err.strerror}; name another with CRESCENDO_STATE") from err
    if name:
        raise ConfigError(f"--name {name}: there is one of that name; crescendo system down {name} ends it")
    raise ConfigError(f"{_MOST} systems of the kind {kind.name} are up; crescendo system down --all ends them")


def _checked(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise ConfigError(f"{name!r} is no name for a system; use letters, digits, - and _, at most 64")
    return name


def _write(place: Path, record: DetachedSystem) -> None:
    """Whole or not at all: a reader never sees half a record."""
    draft = place / f"{_RECORD}.tmp"
    try:
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            file.write(msgspec.json.encode(record))
        draft.replace(place / _RECORD)
    except OSError as err:
        raise ConfigError(f"{place} cannot be written: {err.strerror}; name another with CRESCENDO_STATE") from err


def _read(place: Path) -> DetachedSystem | None:
    """None: there is nothing, or nothing yet."""
    try:
        return msgspec.json.decode((place / _RECORD).read_bytes(), type=DetachedSystem)
    except FileNotFoundError:
        return None
    except OSError as err:
        raise ConfigError(f"{place / _RECORD} cannot be read: {err.strerror}") from err
    except msgspec.DecodeError as err:
        raise ConfigError(
            f"{place / _RECORD} is damaged ({err}); end its processes by hand and remove {place}"
        ) from err
