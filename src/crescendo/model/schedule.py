"""How long will the measure phase last, and what rate will be offered, in it and over time?

All of it follows from the experiment alone, before anything has started.
"""

import math
from collections.abc import Collection, Iterator

import numpy as np

from crescendo.model.arrays import Floats
from crescendo.model.changed_rate import RateChanges, with_changes
from crescendo.model.experiment import Experiment
from crescendo.model.pacer import Pacer, messages_within
from crescendo.model.profile import Poisson, Replay
from crescendo.model.slices import is_in_slice
from crescendo.model.workload import Group

MAX_DRAWN_ARRIVALS = 100_000_000
"""Of more Poisson arrivals than this, the mean rate is taken: their number differs from it by 0.01 %."""


def measure_ns(experiment: Experiment) -> int | None:
    """The length of the measure phase; None when it is a message count at an unbounded rate."""
    phases = experiment.phases
    if phases.measure.duration is not None:
        return int(phases.measure.duration)
    if phases.measure.messages is None or _is_unbounded(experiment):
        return None
    return (
        max(
            _due_ns(pacer, messages_within(pacer, phases.warmup) + phases.measure.messages)
            for pacer in _pacers(experiment)
        )
        - phases.warmup
    )


def offered(experiment: Experiment, changes: RateChanges = (), senders: Collection[int] | None = None) -> float:
    """Messages per second due in the measure phase, over all senders or over these; 0 when one is unbounded.

    With changes of rate it is their mean over that phase: the number of due messages, divided by its length.
    """
    groups = _groups_of_senders(experiment)
    chosen = frozenset(range(len(groups)) if senders is None else senders)
    if not all(number < len(groups) and groups[number].rate for number in chosen):
        return 0.0
    if not changes and isinstance(experiment.profile, Poisson) and _expected_arrivals(experiment) > MAX_DRAWN_ARRIVALS:
        return sum(groups[number].rate for number in chosen)
    length_ns = measure_ns(experiment)
    if not length_ns:
        return 0.0
    begin_ns = experiment.phases.warmup
    count = sum(
        messages_within(pacer, begin_ns + length_ns) - messages_within(pacer, begin_ns)
        for number, pacer in enumerate(_pacers(experiment, changes))
        if number in chosen
    )
    return count / length_ns * 1e9


def expected_messages(experiment: Experiment) -> int | None:
    """About how many messages all senders will send; None when nobody knows before the run."""
    if _is_unbounded(experiment) or experiment.clients or isinstance(experiment.profile, Replay):
        return None
    return math.ceil(_expected_arrivals(experiment))


def most_samples(experiment: Experiment, slice_name: str = "") -> int | None:
    """How many latencies the measure phase can have at most, in a slice or in all; None when nobody knows."""
    if _is_unbounded(experiment) or experiment.clients or isinstance(experiment.profile, Poisson | Replay):
        return None
    phases, count, first = experiment.phases, 0.0, 0
    edges_ns = np.array([phases.warmup, phases.warmup + (phases.measure.duration or 0)], np.float64)
    everybody = sum(group.receivers for group in experiment.workload)
    for group in experiment.workload:
        if is_in_slice(group, slice_name):
            senders = range(first, first + group.senders)
            due = experiment.profile.expected(group.rate, senders, edges_ns)
            sent = float(due[1] - due[0]) + group.senders * (1 + (phases.measure.messages or 0))
            count += sent * (everybody if group.target.is_topic else 1)
        first += group.senders
    return math.ceil(count) or None  # a slice that only receives has the messages of others


def messages_due(experiment: Experiment, elapsed_ns: Floats) -> Floats:
    """How many messages the profile asks for by each time since the start, over all connections.

    Of random arrivals, their mean. Reads the file of a replay.
    """
    due, first = np.zeros(elapsed_ns.shape), 0
    for group in experiment.workload:
        due += experiment.profile.expected(group.rate, range(first, first + group.senders), elapsed_ns)
        first += group.senders
    return due


def _is_unbounded(experiment: Experiment) -> bool:
    return not all(group.rate for group in experiment.workload if group.senders)


def _expected_arrivals(experiment: Experiment) -> float:
    phases = experiment.phases
    warmup_s, measure_s = phases.warmup / 1e9, (phases.measure.duration or 0) / 1e9
    return sum(
        group.senders * (group.rate * (warmup_s + measure_s) + (phases.measure.messages or 0))
        for group in experiment.workload
    )


def _pacers(experiment: Experiment, changes: RateChanges = ()) -> Iterator[Pacer]:
    """One per sending connection, numbered as in the run. One at a time: a run may have tens of thousands."""
    return (
        with_changes(experiment.pacer_of(group, sender), group.rate, changes)
        for sender, group in enumerate(_groups_of_senders(experiment))
    )


def _groups_of_senders(experiment: Experiment) -> list[Group]:
    """The group of each sender, by its number in the run."""
    return [group for group in experiment.workload for _ in range(group.senders)]


def _due_ns(pacer: Pacer, n: int) -> int:
    return int(pacer.due_ns(np.array([n], np.int64))[0])
