"""What must a system be started with, so that its disk and its clock can be broken later?

A loop disk under its data directory, or under the part of it that belongs to one node, and a library that reads the
time of day from a file: both have to be there before the first process. Without such a fault in the experiment a system
gets neither. Breaks nothing itself.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from crescendo.faults.clock import CLOCK, clock_environment
from crescendo.faults.disk import DISK
from crescendo.faults.loop_disk import LoopDisk, Owe, image_name
from crescendo.model.planned_faults import SYSTEM, PlannedFault
from crescendo.systems.base import Surroundings
from crescendo.systems.instance_dir import DATA

NEEDS_SURROUNDINGS = frozenset({DISK.name, CLOCK.name})
"""Faults that can only happen to a system that was started for them."""

_CLOCK_FILE = "wall-clock"


@dataclass(frozen=True)
class BreakableSurroundings:
    """Where faults find the disk and the clock of one target."""

    disk: Path | None = None
    clock_file: Path | None = None


@dataclass(frozen=True)
class SystemSurroundings:
    """What a system is given, and where the faults of the whole and of each node find it."""

    given: Surroundings
    of: Mapping[str, BreakableSurroundings] = field(default_factory=dict)


def breakable_surroundings(
    faults: Sequence[PlannedFault], directory: Path, images: Path, owe: Owe, node_data: Mapping[str, str] | None = None
) -> SystemSurroundings:
    """For a system that is started in this directory. `node_data` says where its nodes keep their messages."""
    parts = {SYSTEM: "", **(node_data or {})}
    sizes: dict[str, int] = {}  # part of the data directory -> size of its disk
    for fault in faults:
        if fault.do == DISK.name:
            part = parts[fault.on]
            sizes[part] = max(sizes.get(part, 0), DISK.settings_of(fault.settings).size)
    clocks = {fault.on: f"{_CLOCK_FILE}-{fault.on}" for fault in faults if fault.do == CLOCK.name}

    def env(instance: Path, node: str) -> Mapping[str, str]:
        file = clocks.get(SYSTEM, clocks.get(node))
        return {} if file is None else clock_environment(instance / file)

    return SystemSurroundings(
        Surroundings(
            {part: LoopDisk(images / image_name(), size, owe) for part, size in sizes.items()},
            env,
            dict.fromkeys(clocks.values(), "+0\n"),
        ),
        {
            target: BreakableSurroundings(
                directory / DATA / parts[target] if parts.get(target) in sizes else None,
                directory / clocks[target] if target in clocks else None,
            )
            for target in {fault.on for fault in faults}
        },
    )
