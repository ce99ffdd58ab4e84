"""Which faults happen when, if chance decides?

Pure: the same seed, actions and length give the same timeline. Faults do not overlap, and each leaves the system time
to come back, so that what is lost belongs to a fault and not to a system that never ran. Applies nothing.
"""

import random
from collections.abc import Sequence

from crescendo.model.planned_faults import FaultMoment, PlannedFault
from crescendo.model.units import Duration

LASTING = {"stop": (200, 1500), "kill": (200, 1500), "pause": (200, 3000), "cpu": (500, 3000)}
"""Action -> how many milliseconds it may last. The others take no time of their own."""

ACTIONS = ("restart", "kill", "stop", "pause", "disconnect", "cpu")
"""What may happen, the worst first."""

MAX_FAULTS = 6
_LEAST_GAP_MS = 400
_MS = 1_000_000


def random_timeline(seed: int, actions: Sequence[str], measure_ns: int) -> list[PlannedFault]:
    """Between two and six faults within the measure phase, in order of time."""
    draw = random.Random(f"torture {seed}")  # noqa: S311 - repeatable, not secret
    whole_ms = measure_ns // _MS
    room_ms = whole_ms * 9 // 10
    faults: list[PlannedFault] = []
    at_ms = whole_ms // 20
    for _ in range(draw.randint(2, MAX_FAULTS)):
        at_ms += draw.randint(_LEAST_GAP_MS, max(_LEAST_GAP_MS, room_ms // MAX_FAULTS))
        do = draw.choice(list(actions))
        low_ms, high_ms = LASTING.get(do, (0, 0))
        lasts_ms = draw.randint(low_ms, max(low_ms, min(high_ms, whole_ms // 8)))
        if at_ms + lasts_ms > room_ms and faults:
            break
        lasts = Duration(lasts_ms * _MS) if lasts_ms else None
        faults.append(PlannedFault(FaultMoment.parse(f"measure + {at_ms}ms"), do, lasts=lasts))
        at_ms += lasts_ms
    return faults


def worst_first(faults: Sequence[PlannedFault]) -> list[PlannedFault]:
    """In the order in which it is worth trying each alone."""
    return sorted(faults, key=lambda fault: ACTIONS.index(fault.do) if fault.do in ACTIONS else len(ACTIONS))
