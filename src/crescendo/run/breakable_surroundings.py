"""What must a system be started with, so that its disk and its clock can be broken later?

A loop disk under its data directory, a library that reads its time of day from a file: both have to be there before its
first process. Without such a fault in the experiment a system gets neither. Breaks nothing itself.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from crescendo.faults.clock import CLOCK, clock_environment
from crescendo.faults.disk import DISK
from crescendo.faults.loop_disk import LoopDisk, Owe, image_name
from crescendo.model.planned_faults import PlannedFault
from crescendo.systems.base import Surroundings
from crescendo.systems.instance_dir import DATA

NEEDS_SURROUNDINGS = frozenset({DISK.name, CLOCK.name})
"""Faults that can only happen to a system that was started for them."""

_SYSTEM, _CLOCK_FILE = "system", "wall-clock"


@dataclass(frozen=True)
class BreakableSurroundings:
    """What the system is given, and where faults find it."""

    given: Surroundings | None = None
    disk: Path | None = None
    clock_file: Path | None = None


def breakable_surroundings(faults: Sequence[PlannedFault], run_dir: Path, owe: Owe) -> BreakableSurroundings:
    """For a system that is started in this run."""
    sizes = [DISK.settings_of(each.settings).size for each in faults if each.do == DISK.name]
    has_clock = any(each.do == CLOCK.name for each in faults)
    directory = run_dir / _SYSTEM
    disk = LoopDisk(run_dir / image_name(), max(sizes), owe) if sizes else None
    return BreakableSurroundings(
        Surroundings(
            disk,
            (lambda instance: clock_environment(instance / _CLOCK_FILE)) if has_clock else (lambda _: {}),
            {_CLOCK_FILE: "+0\n"} if has_clock else {},
        ),
        directory / DATA if sizes else None,
        directory / _CLOCK_FILE if has_clock else None,
    )
