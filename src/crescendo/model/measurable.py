"""Can this experiment measure what its checks judge?

What is known before a run is refused before it: a check on something that this workload cannot have would be invalid
after the last message. Recordings of such experiments stay readable. Judges no measurement.
"""

import math

from crescendo.model.errors import ConfigError
from crescendo.model.experiment import Experiment
from crescendo.model.metrics import RESPONSE, SAMPLES_BEYOND, SETTLE, Need, metric_of, split_metric
from crescendo.model.schedule import most_samples
from crescendo.model.slices import is_in_slice
from crescendo.model.workload import Settle


def check_measurable(experiment: Experiment, source: str) -> None:
    """Reject checks and limits whose value cannot exist."""
    for name, bound in (experiment.checks or {}).items():
        slice_name, _ = split_metric(name)
        sending = [group for group in experiment.workload if group.senders and is_in_slice(group, slice_name)]
        unscheduled = [group.name for group in sending if not group.rate]
        metric, where = metric_of(name), f"{source}: checks.{name}"
        of = metric.latency
        if slice_name and metric.knows_no_slices:
            raise ConfigError(
                f"{where}: it is counted for all groups together; write checks.{metric.name}, which is that of the "
                "whole run"
            )
        if not sending:
            continue
        if of is not None and of.kind == RESPONSE and len(unscheduled) == len(sending):
            raise ConfigError(
                f"{where}: response is measured from the time at which a message is due, and with rate: 0 none is due; "
                f"judge transfer_{of.statistic} instead, or give a rate"
            )
        if bound.unit == "of offered" and unscheduled:
            raise ConfigError(
                f"{where}: {str(bound)!r} needs an offered rate, and group {unscheduled[0]!r} has rate: 0, which is "
                "unbounded; write messages per second, such as '>= 5000', or give a rate"
            )
        if of is not None and of.kind == SETTLE and all(group.settle is Settle.AT_MOST_ONCE for group in sending):
            raise ConfigError(f"{where}: at-most-once settles nothing; use settle: at-least-once, or remove the check")
    _check_limits(experiment, source)


def check_planned(experiment: Experiment, source: str) -> None:
    """Reject checks on what a single run of this plan will not have: faults, or samples enough for a percentile.

    Not for searches, campaigns and tortures: they change the rate or add faults, and an invalid run is an answer there.
    """
    for name in experiment.checks or {}:
        metric, where = metric_of(name), f"{source}: checks.{name}"
        if metric.needs is Need.FAULTS and not experiment.faults:
            raise ConfigError(f"{where}: no fault is planned, so there is nothing to recover from; add faults")
        percent = None if metric.latency is None else metric.latency.percent
        samples = None if percent is None else most_samples(experiment, split_metric(name)[0])
        if percent is None or samples is None or samples - math.ceil(samples * percent / 100) >= SAMPLES_BEYOND:
            continue
        needed = math.ceil(round(SAMPLES_BEYOND * 100 / (100 - percent), 6))
        raise ConfigError(
            f"{where}: it needs {SAMPLES_BEYOND} samples beyond the percentile, so {needed:,} messages, and at most "
            f"{samples:,} are planned; measure longer, raise the rate, or judge a lower percentile"
        )


def _check_limits(experiment: Experiment, source: str) -> None:
    for name in experiment.stop_when:
        sliced, _ = split_metric(name)
        sending = [group for group in experiment.workload if group.senders and is_in_slice(group, sliced)]
        if sending and not any(group.rate for group in sending):
            raise ConfigError(f"{source}: stop_when.{name}: response needs a rate, and rate: 0 is unbounded")
