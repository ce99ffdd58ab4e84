"""How long will the measure phase last, and what rate will be offered in it?

Both follow from the experiment alone, before anything has started.
"""

import numpy as np

from crescendo.model.experiment import Experiment
from crescendo.model.pacer import Pacer, messages_within


def measure_ns(experiment: Experiment) -> int | None:
    """The length of the measure phase; None when it is a message count at an unbounded rate."""
    phases = experiment.phases
    if phases.measure.duration is not None:
        return int(phases.measure.duration)
    pacers = _pacers(experiment)
    if phases.measure.messages is None or not all(pacer.bounded for pacer in pacers):
        return None
    return max(_due_ns(pacer, messages_within(pacer, phases.warmup) + phases.measure.messages) for pacer in pacers) - (
        phases.warmup
    )


def offered(experiment: Experiment) -> float:
    """Messages per second due in the measure phase, over all connections; 0 when unbounded."""
    length_ns = measure_ns(experiment)
    pacers = _pacers(experiment)
    if not length_ns or not all(pacer.bounded for pacer in pacers):
        return 0.0
    begin_ns = experiment.phases.warmup
    count = sum(messages_within(pacer, begin_ns + length_ns) - messages_within(pacer, begin_ns) for pacer in pacers)
    return count / length_ns * 1e9


def _pacers(experiment: Experiment) -> list[Pacer]:
    """One per sending connection, numbered as in the run."""
    numbered = [group for group in experiment.workload for _ in range(group.senders)]
    return [experiment.pacer_of(group, sender) for sender, group in enumerate(numbered)]


def _due_ns(pacer: Pacer, n: int) -> int:
    return int(pacer.due_ns(np.array([n], np.int64))[0])
