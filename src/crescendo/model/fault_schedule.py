"""When does each fault of an experiment begin?

Pure: the same experiment and seed give the same times. Every fault draws from its own source of random numbers, so that
a fault that is added or removed moves no other. Applies nothing.
"""

import random
from typing import TYPE_CHECKING, NamedTuple

from crescendo.model.planned_faults import PlannedFault

if TYPE_CHECKING:
    from crescendo.model.experiment import Experiment


class ScheduledFault(NamedTuple):
    """One occurrence of a fault."""

    offset_ns: int  # since the start of the run
    number: int  # in order of time
    planned: PlannedFault


def fault_schedule(experiment: "Experiment") -> tuple[ScheduledFault, ...]:
    """All occurrences, in order of time."""
    times = [
        (offset_ns, place, planned)
        for place, planned in enumerate(experiment.faults)
        for offset_ns in _offsets_ns(experiment, place, planned)
    ]
    times.sort(key=lambda each: each[:2])
    return tuple(ScheduledFault(offset_ns, number, planned) for number, (offset_ns, _, planned) in enumerate(times))


def _offsets_ns(experiment: "Experiment", place: int, planned: PlannedFault) -> list[int]:
    draw = random.Random(f"{experiment.seed} {place}")  # noqa: S311 - repeatable, not secret
    first_ns = _phase_start_ns(experiment, planned.at.phase) + planned.at.offset
    return [
        first_ns + number * (planned.every or 0) + int(draw.random() * (planned.within or 0))
        for number in range(planned.times)
    ]


def _phase_start_ns(experiment: "Experiment", phase: str | None) -> int:
    phases = experiment.phases
    match phase:
        case "measure":
            return phases.warmup
        case "drain":
            if phases.measure.duration is None:
                raise ValueError(
                    "at: when the drain begins is not known before, because measure is a count of messages"
                )
            return phases.warmup + phases.measure.duration
        case _:
            return 0


def check_faults(experiment: "Experiment") -> None:
    """Reject faults that would begin after the run."""
    for number, planned in enumerate(experiment.faults):
        try:
            offsets_ns = _offsets_ns(experiment, number, planned)
        except ValueError as err:
            raise ValueError(f"faults[{number}].{err}") from None
        measured = experiment.phases.measure.duration
        if measured is None:
            continue
        loaded_ns = experiment.phases.warmup + measured
        latest_ns = loaded_ns + experiment.phases.drain if planned.at.phase == "drain" else loaded_ns
        if offsets_ns[-1] >= latest_ns:
            raise ValueError(
                f"faults[{number}].at: it would begin {offsets_ns[-1] / 1e9:g} s after the start, when nothing is "
                f"sent any more; the load ends after {loaded_ns / 1e9:g} s"
            )
