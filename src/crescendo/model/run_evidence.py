"""What does a metric see of a run?

The part of the evidence that values of metrics are computed from, as read-only protocols; `pipeline.verdict` provides
it. Metrics of other packages may rely on these names. Times are nanoseconds, rates are messages per second. Holds no
values itself.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from crescendo.model.peer_statistics import PeerStatistics


class CountedMessages(Protocol):
    """Every message of the whole run, accounted for."""

    @property
    def sent(self) -> int: ...

    @property
    def owed(self) -> int: ...

    @property
    def settled(self) -> int: ...

    @property
    def delivered(self) -> int: ...

    @property
    def lost(self) -> int: ...

    @property
    def lost_acknowledged(self) -> int: ...

    @property
    def lost_unacknowledged(self) -> int: ...

    @property
    def duplicated(self) -> int: ...

    @property
    def reordered(self) -> int: ...

    @property
    def corrupt(self) -> int: ...

    @property
    def stray(self) -> int: ...

    @property
    def unrecorded(self) -> int: ...

    @property
    def undelivered(self) -> int: ...


class MeasuredRate(Protocol):
    """Messages per second in the measure phase; the offered rate is 0 when unbounded."""

    @property
    def offered(self) -> float: ...

    @property
    def sent(self) -> float: ...

    @property
    def sustained(self) -> float: ...

    @property
    def duration_ns(self) -> int: ...

    @property
    def bytes_per_second(self) -> float: ...


class MeasuredLatency(Protocol):
    """One kind of latency in the measure phase. A percentile with too few samples beyond it is None."""

    @property
    def count(self) -> int: ...

    @property
    def min_ns(self) -> int: ...

    @property
    def max_ns(self) -> int: ...

    @property
    def mean_ns(self) -> float: ...

    @property
    def percentiles_ns(self) -> Mapping[str, int | None]: ...


class MeasuredRecovery(Protocol):
    """What one fault did, and how long until the system was well again; None where that did not happen."""

    @property
    def detected_ns(self) -> int | None: ...

    @property
    def outage_ns(self) -> int | None: ...

    @property
    def recovered_ns(self) -> int | None: ...

    @property
    def caught_up_ns(self) -> int | None: ...

    @property
    def never_offered(self) -> int: ...


class RunEvidence(Protocol):
    """What was measured in one run."""

    @property
    def counts(self) -> CountedMessages | None:
        """None for an import whose source kept no messages."""

    @property
    def rate(self) -> MeasuredRate: ...

    @property
    def latency(self) -> Mapping[str, MeasuredLatency]:
        """By kind; without the kinds that were not measured."""

    @property
    def recoveries(self) -> Sequence[MeasuredRecovery] | None:
        """Of each fault, in order of time; None if that was not computed."""

    @property
    def longest_outage_ns(self) -> int:
        """The longest time without deliveries that were due, whatever the cause; 0 if there was none."""

    @property
    def load_ended_ns(self) -> Mapping[int, int]:
        """Fault -> how long after its start the load ended."""

    @property
    def violations(self) -> float | None:
        """What clients found wrong with their own messages; None unless every client process reported it."""

    @property
    def statistics(self) -> Mapping[str, PeerStatistics]:
        """What peers measured about themselves, by the id of the peer."""

    def rows(self, table: str) -> Sequence[Any]:
        """The rows of a published table of the whole run, by its name; none if the run does not have the table.

        They have the type that `record.tables` declares for it, or the package that offers it.
        """
