"""Can this experiment measure what its checks judge?

What is known before a run is refused before it: a check on something that this workload cannot have would be invalid
after the last message. Recordings of such experiments stay readable. Judges no measurement.
"""

from crescendo.model.errors import ConfigError
from crescendo.model.experiment import Experiment
from crescendo.model.metrics import RESPONSE, SETTLE, metric_of, split_metric
from crescendo.model.slices import is_in_slice
from crescendo.model.workload import Settle


def check_measurable(experiment: Experiment, source: str) -> None:
    """Reject checks and limits whose value cannot exist."""
    for name, bound in (experiment.checks or {}).items():
        slice_name, _ = split_metric(name)
        sending = [group for group in experiment.workload if group.senders and is_in_slice(group, slice_name)]
        unscheduled = [group.name for group in sending if not group.rate]
        of = metric_of(name).latency
        where = f"{source}: checks.{name}"
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
    for name in experiment.stop_when:
        sliced, _ = split_metric(name)
        sending = [group for group in experiment.workload if group.senders and is_in_slice(group, sliced)]
        if sending and not any(group.rate for group in sending):
            raise ConfigError(f"{source}: stop_when.{name}: response needs a rate, and rate: 0 is unbounded")
