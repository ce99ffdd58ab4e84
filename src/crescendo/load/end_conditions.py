"""When does a peer end without a request from a conductor?

When nothing arrives any more since sending is over, and when a latency exceeds its limit. Values and arithmetic only.
"""

from crescendo.control.notes import Statistics
from crescendo.model.experiment import Experiment
from crescendo.model.metrics import exceeded_in_second
from crescendo.model.units import format_ns

QUIET_NS = 1_000_000_000
"""Without a message for this long after the end of sending, everything has arrived."""


class Drain:
    """What arrives after the end of sending."""

    def __init__(self) -> None:
        self.announced = False
        self._messages = -1
        self._since_ns = 0

    def is_quiet(self, statistics: Statistics) -> bool:
        """Whether nothing has arrived for a while. Call it with every report."""
        if statistics.messages != self._messages:
            self._messages, self._since_ns = statistics.messages, statistics.t_ns
        return statistics.t_ns - self._since_ns >= QUIET_NS


def exceeded_limit(experiment: Experiment | None, statistics: Statistics) -> str | None:
    """The latency of the last second that exceeds a limit of `stop_when`, in words."""
    found = (
        None if experiment is None else exceeded_in_second(experiment.stop_when, statistics.values, statistics.by_slice)
    )
    if found is None:
        return None
    name, value_ns, limit_ns = found
    return f"{name} was {format_ns(value_ns)} in one second, and the limit is {format_ns(limit_ns)}"
