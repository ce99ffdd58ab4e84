"""What is a fault, and what undoes it?

An action does one thing to a target: a node with its processes, or whatever another package breaks. It says beforehand
what would undo it, as a value, so that another process can do that when this one has died. Starts no thread and keeps
no time: `executor.py` does.
"""

import importlib
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

import msgspec
from msgspec import Struct

from crescendo.model.errors import ConfigError
from crescendo.model.units import parse_unit
from crescendo.processes.ref import ProcessRef

NODE = "node"
"""The kind of target that has processes: a system or a node of a network."""

_OURS = "crescendo."


class Length(StrEnum):
    """Whether an action lasts."""

    NONE = "none"
    OPTIONAL = "optional"
    REQUIRED = "required"


class NoSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """Of an action that has none."""


class Cure(Struct, frozen=True):
    """What undoes a fault: a function of ours, and its arguments as plain values. It may be called twice."""

    function: str  # module:name
    arguments: dict[str, Any]

    def carry_out(self) -> None:
        module, _, name = self.function.partition(":")
        if not module.startswith(_OURS):
            raise ValueError(f"{self.function} is not ours")
        getattr(importlib.import_module(module), name)(**self.arguments)


class FaultNode(Protocol):
    """A node that can be broken: its processes, and how it ends and starts."""

    @property
    def name(self) -> str: ...

    @property
    def token(self) -> str:
        """What its processes and their descendants have in their environment."""

    @property
    def ports(self) -> Sequence[int]:
        """Where it listens."""

    @property
    def main_process(self) -> ProcessRef:
        """The process that serves."""

    @property
    def disk(self) -> Path | None:
        """Where its own disk is mounted, if it was started with one."""

    @property
    def clock_file(self) -> Path | None:
        """The file that its wall clock follows, if it was started with one."""

    def end(self) -> None:
        """Let it shut down in order, and kill it if that takes too long."""

    def kill(self) -> None:
        """Kill all of its processes at once."""

    def start(self) -> None:
        """Start it again with its data on the same ports, and return when it serves. Does nothing if it runs."""


TargetT = TypeVar("TargetT")
SettingsT = TypeVar("SettingsT", bound=Struct)


class FaultAction(ABC, Generic[TargetT, SettingsT]):
    """One thing that can be done. Its module has one instance, and the registry one line."""

    name: str
    summary: str
    settings: type[SettingsT]
    acts_on: str = NODE
    length: Length = Length.NONE

    def why_not(self, settings: SettingsT) -> str:
        """Why it cannot be done on this machine; empty if it can."""
        return ""

    def is_instant(self, settings: SettingsT) -> bool:
        """Whether a fault without a length ends at once; otherwise it lasts until the run ends."""
        return self.length is Length.NONE

    def own_length_s(self, target: TargetT, settings: SettingsT) -> float:
        """How long a fault that ends by itself lasts. Called once, when it has begun."""
        return 0.0

    def prepare(self, target: TargetT, settings: SettingsT) -> Cure | None:
        """What will undo it. Changes nothing yet; called a moment before the fault is due."""
        return None

    @abstractmethod
    def apply(self, target: TargetT, settings: SettingsT, cure: Cure | None) -> str:
        """Do it now, and say by which means if there are several."""

    def end(self, target: TargetT, settings: SettingsT, cure: Cure | None, *, final: bool) -> None:
        """Undo it. `final`: the run is over, and what is left of the target will be stopped."""
        if cure is not None:
            cure.carry_out()

    def settings_of(self, given: Mapping[str, Any]) -> SettingsT:
        """The settings of the file, checked."""
        try:
            return msgspec.convert(dict(given), self.settings, dec_hook=parse_unit)
        except msgspec.ValidationError as err:
            text, _, where = str(err).partition(" - at `$")
            keys = ", ".join(field.encode_name for field in msgspec.structs.fields(self.settings)) or "none"
            place = f"with{where.rstrip('`')}"
            raise ConfigError(f"{place}: {text[:1].lower()}{text[1:]}; settings of {self.name}: {keys}") from None
