"""Which faults could break a promise, and which of them are needed for it?

Random timelines from a seed, and the shortest part of a failing one that still fails. Pure: whether a timeline fails is
asked of the caller, who runs it.
"""

import random
from collections.abc import Callable, Sequence

from crescendo.model.planned_faults import SYSTEM, FaultMoment, PlannedFault
from crescendo.model.units import Duration

Timeline = tuple[PlannedFault, ...]

MS = 1_000_000
FIRST_NS, SPACING_NS = 500 * MS, 2_000 * MS
"""When the first fault may begin, and how far apart faults are at least, so that a node serves between them."""

_LASTING = ("kill", "stop", "pause")
_ACTIONS = (*_LASTING, "restart")
_SHORTEST_NS, _LONGEST_NS = 100 * MS, 1_500 * MS
_STEP_NS = 10 * MS


def random_timeline(seed: int, number: int, most: int) -> Timeline:
    """The timeline of one try: one fault, up to `most`. The same seed and number give the same one."""
    draw = random.Random(f"{seed} {number}")  # noqa: S311 - repeatable, not secret
    faults = []
    at_ns = FIRST_NS
    for _ in range(draw.randint(1, most)):
        at_ns += draw.randrange(0, SPACING_NS, _STEP_NS)
        action = draw.choice(_ACTIONS)
        lasts_ns = draw.randrange(_SHORTEST_NS, _LONGEST_NS, _STEP_NS) if action in _LASTING else 0
        lasts = Duration(lasts_ns) if lasts_ns else None
        faults.append(PlannedFault(FaultMoment(f"measure + {Duration(at_ns)}"), action, SYSTEM, lasts))
        at_ns += lasts_ns + SPACING_NS
    return tuple(faults)


def length_ns(timeline: Timeline) -> int:
    """From the beginning of the measure phase until the last fault is over, and a node could have started again."""
    return max((int(fault.at.offset) + int(fault.lasts or 0) for fault in timeline), default=0) + SPACING_NS


def shrunk(timeline: Timeline, fails: Callable[[Timeline], bool]) -> Timeline:
    """The shortest part that still fails: no single fault of it can be left out."""
    halves = _halves(timeline)
    for half in halves:
        if len(half) < len(timeline) and fails(half):
            return shrunk(half, fails)
    for number in range(len(timeline)):
        rest = timeline[:number] + timeline[number + 1 :]
        if rest and rest not in halves and fails(rest):
            return shrunk(rest, fails)
    return timeline


def _halves(timeline: Timeline) -> Sequence[Timeline]:
    middle = len(timeline) // 2
    return [half for half in (timeline[:middle], timeline[middle:]) if half]
