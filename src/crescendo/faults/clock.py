"""How does the wall clock of a system jump?

The system is started with libfaketime, which adds what a file says to the time of day; the fault writes that file. The
monotonic clock is left alone, as when an administrator sets the time. Only the system is affected: load and recording
use other clocks, which stay right.
"""

from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct

from crescendo.faults import cures
from crescendo.faults.action import Cure, FaultAction, FaultNode, Length
from crescendo.model.errors import PeerError
from crescendo.model.units import Duration

_LIBRARIES = ("/usr/lib", "/usr/lib64", "/usr/local/lib")
_LIBRARY = "faketime/libfaketimeMT.so.1"


class ClockSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """How far the clock jumps, and in which direction."""

    forward: Duration | None = None
    back: Duration | None = None

    def __post_init__(self) -> None:
        if (self.forward is None) == (self.back is None):
            raise ValueError("give forward or back, such as forward: 1h")

    @property
    def jump_s(self) -> float:
        return (self.forward or 0) / 1e9 - (self.back or 0) / 1e9


class JumpClock(FaultAction[FaultNode, ClockSettings]):
    """Sets the time of day of a system."""

    name = "clock"
    summary = "the wall clock of the system jumps `forward` or `back`, and after `for` to the right time"
    settings = ClockSettings
    length = Length.OPTIONAL

    def why_not(self, settings: ClockSettings) -> str:
        return "" if library() is not None else "it needs libfaketime; install the package of that name"

    def prepare(self, target: FaultNode, settings: ClockSettings) -> Cure:
        file = str(_clock_of(target))
        return Cure(f"{cures.__name__}:{cures.set_clock.__name__}", {"file": file, "jump_s": 0.0})

    def apply(self, target: FaultNode, settings: ClockSettings, cure: Cure | None) -> str:
        cures.set_clock(str(_clock_of(target)), settings.jump_s)
        return "libfaketime"


def library() -> Path | None:
    """The library to load into every process of the system; None if it is not installed."""
    for root in _LIBRARIES:
        for folder in (Path(root), *sorted(Path(root).glob("*-linux-gnu*"))):
            if (folder / _LIBRARY).exists():
                return folder / _LIBRARY
    return None


def clock_environment(file: Path) -> Mapping[str, str]:
    """What makes a process read its time of day through the library."""
    return {
        "LD_PRELOAD": str(library() or ""),
        "FAKETIME_TIMESTAMP_FILE": str(file),
        "FAKETIME_NO_CACHE": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        # The library repairs a fault that glibc no longer has; a JVM's waits of 200 ms then end after 0 to 20 ms.
        "FAKETIME_FORCE_MONOTONIC_FIX": "0",
    }


def _clock_of(target: FaultNode) -> Path:
    if target.clock_file is None:
        raise PeerError(f"{target.name} was not started with a clock of its own")
    return target.clock_file


CLOCK = JumpClock()
