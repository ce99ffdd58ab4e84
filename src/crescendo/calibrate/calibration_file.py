"""Where are the ceilings of this machine stored, and when are they valid?

One small file per machine, in the user's state directory, because a home directory may be shared by many machines. It
holds the ceilings and the facts they depend on; a calibration of another machine, another Python or another Crescendo
is ignored. Measures nothing.
"""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

from crescendo.model.errors import ConfigError
from crescendo.model.own_delay import is_notable
from crescendo.record.documents import read_or_none, write_document
from crescendo.systems.detached import state_directory

SENDER, RECEIVER = "sender", "receiver"
ROLES = (SENDER, RECEIVER)
FORMAT = 1
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]")


class Machine(Struct, frozen=True):
    """The facts that a ceiling depends on."""

    name: str
    processor: str
    cores: int
    python: str
    crescendo: str


class Ceiling(Struct, frozen=True):
    """Messages per second that one process of one role reached against a null server: the median of its trials."""

    protocol: str
    role: str
    size: int
    rate: float
    lowest: float
    highest: float
    turns: int
    without_stalls: float | None = None
    """The same without the time in which our own loop stood still; None if nobody looked."""

    @property
    def is_doubtful(self) -> bool:
        """Whether our own stalls could explain it: then it says how busy the machine was, not what it can do."""
        return self.without_stalls is not None and is_notable(self.rate, self.without_stalls)

    @property
    def key(self) -> tuple[str, str, int]:
        return self.protocol, self.role, self.size


class Calibration(Struct, frozen=True):
    """All ceilings of one machine."""

    machine: Machine
    taken_ns: int  # wall clock
    ceilings: list[Ceiling]
    format: int = FORMAT

    def ceiling_of(self, protocol: str, role: str, size: float) -> Ceiling | None:
        """The ceiling at this size, or at the next larger calibrated size; larger messages are never cheaper."""
        known = [c for c in self.ceilings if (c.protocol, c.role) == (protocol, role) and not c.is_doubtful]
        fitting = [c for c in known if c.size >= size]
        return min(fitting, key=lambda ceiling: ceiling.size, default=None)


def machine_of(host: Mapping[str, Any], versions: Mapping[str, str]) -> Machine:
    """The machine that these facts, from a manifest or from this host, describe."""
    return Machine(
        name=str(host.get("name", "")),
        processor=str(host.get("processor", "")),
        cores=int(host.get("cores", 0)),
        python=versions.get("python", ""),
        crescendo=versions.get("crescendo", ""),
    )


def path_of(machine: Machine) -> Path:
    return state_directory().parent / "calibration" / f"{_UNSAFE.sub('_', machine.name) or 'machine'}.json"


def read_calibration(machine: Machine) -> Calibration | None:
    """The calibration of exactly this machine; None if there is none, or it is unreadable."""
    calibration = read_or_none(path_of(machine), Calibration)
    if calibration is None or calibration.format != FORMAT or calibration.machine != machine:
        return None
    return calibration


def save_ceilings(machine: Machine, ceilings: Iterable[Ceiling], taken_ns: int) -> Path:
    """Add ceilings to the stored calibration; newer ones replace older ones."""
    known = read_calibration(machine)
    merged = {ceiling.key: ceiling for ceiling in (*(known.ceilings if known else ()), *ceilings)}
    path = path_of(machine)
    document = Calibration(machine, taken_ns, [merged[key] for key in sorted(merged)])
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_document(path, document)
    except OSError as err:
        raise ConfigError(f"{path} cannot be written: {err.strerror}; set XDG_STATE_HOME to another directory") from err
    return path
