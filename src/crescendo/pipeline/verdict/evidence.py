"""What was measured, and what is it called in a check?

Everything that a verdict is based on, as one frozen value: the recording's manifest and the small results of the
tables. Metrics compute their values from it; see `model.metrics`. Judges nothing.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from msgspec import structs

from crescendo.model.experiment import Experiment
from crescendo.model.metrics import (
    LOST,
    LOST_ACKNOWLEDGED,
    METRICS,
    RATE,
    RESPONSE,
    SETTLE,
    Metric,
    Need,
    metric_of,
    split_metric,
)
from crescendo.model.mlmq_clients import CLIENT
from crescendo.model.peer_statistics import PeerStatistics
from crescendo.model.verdict import Bound
from crescendo.pipeline.behaviour.steady import PhaseTrend
from crescendo.pipeline.source.foreign_messages import ForeignMessages
from crescendo.pipeline.source.imported_counts import ImportedCounts
from crescendo.pipeline.source.run_slices import RunSlice
from crescendo.record.manifest import ConnectionRecord, Manifest, PeerRecord
from crescendo.record.published_tables import published_tables
from crescendo.record.schema import READ_DELAY_FLOOR_NS
from crescendo.record.summary import Latency, Ledger, Rate
from crescendo.record.table_types import Table
from crescendo.record.tables import OutageRow, RecoveryRow

_DRAIN = "drain"
_SHARED_QUEUE = "it shares its queue with receivers of other groups: judge the group of the senders"


def no_rows(_table: Table[Any]) -> Sequence[Any]:
    """The rows of a table of a run without tables."""
    return ()


@dataclass(frozen=True)
class Evidence:
    """Latencies are those of the measure phase, by kind; the ledger covers the whole run."""

    manifest: Manifest
    experiment: Experiment
    damaged: dict[str, str]
    unlisted: int  # deliveries to receivers that the manifest does not list
    total: Ledger
    rate: Rate
    latency: dict[str, Latency]
    aggregates: ImportedCounts | None = None  # used instead of messages, in an import without any
    without_own_delay: Mapping[str, Latency] | None = None  # by kind; None if the peers kept no account of it
    own_shares: Mapping[int, float] = field(default_factory=dict)  # unbounded sender -> its own share of the phase
    stopped_without_ns: float | None = None  # the value that stopped the run, less own delay
    arrived_at_edge: int = 0  # due in the measure phase, and received just after its end
    others: Sequence[ForeignMessages] = ()  # messages of others that were in the way
    shared_topics: Sequence[str] = ()  # whose receivers got shares instead of copies
    held: Mapping[str, int] = field(default_factory=dict)  # destination -> messages that it held after the drain
    trends: Sequence[PhaseTrend] = ()  # of rate, p99 and backlog over the measure phase
    outages: Sequence[OutageRow] = ()  # in all phases
    recoveries: Sequence[RecoveryRow] | None = None  # of each fault; None if not computed
    read_table: Callable[[Table[Any]], Sequence[Any]] = no_rows  # of the whole run
    run_slice: RunSlice | None = None  # the slice that this is the evidence of; None: the whole run
    shares_queue: bool = False  # with receivers of other slices, so that nobody knows what it was owed

    @cached_property
    def checks(self) -> dict[str, Bound]:
        """The checks to judge. Lost acknowledged messages are always judged, unless a check allows for them."""
        own = "" if self.run_slice is None else self.run_slice.name
        named = ((*split_metric(name), bound) for name, bound in self.experiment.effective_checks.items())
        checks = {metric: bound for named_slice, metric, bound in named if named_slice == own}
        if self.run_slice is not None:
            return checks
        if self.total.lost_acknowledged and not checks.keys() & {LOST, LOST_ACKNOWLEDGED}:
            checks = {**checks, LOST_ACKNOWLEDGED: Bound.parse(0)}
        return checks

    @cached_property
    def metrics(self) -> list[Metric]:
        """The metrics of the checks, in their order."""
        return [metric_of(name) for name in self.checks]

    @cached_property
    def unbounded(self) -> bool:
        if self.run_slice is not None:
            rates = {group.name: group.rate for group in self.experiment.workload}  # clients have none
            return not all(rates.get(item.group) for item in self._connections if item.role == "sender")
        free = any(group.senders and not group.rate for group in self.experiment.workload)
        return free or not self.experiment.workload  # clients alone have no schedule

    @cached_property
    def peers(self) -> list[PeerRecord]:
        """The processes that carried these messages."""
        if self.run_slice is None:
            return self.manifest.peers
        carrying = {item.peer for item in self._connections}
        return [peer for peer in self.manifest.peers if peer.id in carrying]

    @cached_property
    def _connections(self) -> list[ConnectionRecord]:
        run_slice, every = self.run_slice, self.manifest.connections
        if run_slice is None:
            return every
        numbers = {"sender": run_slice.senders, "receiver": run_slice.receivers}
        return [item for item in every if item.id in numbers[item.role]]

    @property
    def counts(self) -> Ledger | None:
        """None for an import whose source kept no messages."""
        return self.total if self.aggregates is None else None

    @cached_property
    def statistics(self) -> dict[str, PeerStatistics]:
        """What peers measured about themselves."""
        return {peer.id: peer.statistics for peer in self.peers}

    @property
    def longest_outage_ns(self) -> int:
        return max((outage.gap_ns for outage in self.outages), default=0)

    @cached_property
    def load_ended_ns(self) -> dict[int, int]:
        """Fault -> how long after its start the load ended."""
        ends_ns = [phase.end_ns for phase in self.manifest.phases if phase.name != _DRAIN]
        end_ns = max(ends_ns, default=0)
        return {number: max(end_ns - row.start_ns, 0) for number, row in enumerate(self.recoveries or ())}

    @cached_property
    def violations(self) -> float | None:
        """Violations that clients found among their own messages; None unless every client process reported them."""
        reported = [peer.statistics.violations for peer in self.manifest.peers if peer.role == CLIENT]
        known = [violations for violations in reported if violations is not None]
        return sum(known) if reported and len(known) == len(reported) else None

    def rows(self, table: str) -> Sequence[Any]:
        """The rows of a published table of the whole run; none if it was not written."""
        return self.read_table(published_tables()[table])

    def value_of(self, metric: Metric) -> float | None:
        """The measured value in base units, or None if there is none."""
        if metric.name == RATE and self.rate_with_edge is not None:
            return self.rate_with_edge
        return self._measured[metric.name][0]

    @cached_property
    def rate_with_edge(self) -> float | None:
        """The rate of what was due in the measure phase and arrived, also just after its end; None unless that decides.

        A pause of a hundredth of the phase at its end is none of a system's that carried every message.
        """
        bound, value = self.checks.get(RATE), self._measured.get(RATE, (None, ""))[0]
        if bound is None or value is None or bound.caps or self.unbounded or self.arrived_at_edge <= 0:
            return None
        offered, with_edge = self.rate.offered, value + self.arrived_at_edge / self.rate.duration_ns * 1e9
        decides = bound.holds(with_edge, offered=offered) and not bound.holds(value, offered=offered)
        return with_edge if decides else None

    @property
    def accounts_own_delay(self) -> bool:
        """Whether the peers kept account of the delay that was theirs."""
        return self.without_own_delay is not None

    def value_without_own_delay(self, metric: Metric) -> float | None:
        """The value that the metric could have had without own delay; None if there is none, or if it is unknown."""
        return self._least.value_of(metric) if self.accounts_own_delay else None

    @cached_property
    def less_own_delay(self) -> "Evidence":
        """The same evidence, less the own delay that was recorded."""
        rate, less = self.rate, self.rate.without_own_delay
        return replace(
            self,
            latency={**self.latency, **(self.without_own_delay or {})},
            rate=rate if less is None else structs.replace(rate, sustained=less),
        )

    @cached_property
    def _least(self) -> "Evidence":
        """The same evidence, less everything that could be own delay."""
        latency = {kind: _less_unrecorded(row) for kind, row in self.less_own_delay.latency.items()}
        return replace(self.less_own_delay, latency=latency)

    def unmeasured(self, metric: Metric, bound: Bound) -> str:
        """Why a metric has no value in this run; empty if it has one."""
        value, failure = self._measured[metric.name]
        return self._missing(metric, bound) or failure or (_without_rows(metric) if value is None else "")

    def _missing(self, metric: Metric, bound: Bound) -> str:
        if self.run_slice is not None and metric.knows_no_slices:
            return f"{metric.name} is known of the whole run only"
        match metric.needs:
            case Need.NOTHING:
                return ""
            case Need.LATENCIES:
                return self._without_latency("" if metric.latency is None else metric.latency.kind)
            case Need.RATES:
                return self._without_messages(metric) or self._without_rate(bound)
            case Need.MESSAGES:
                return self._without_messages(metric)
            case Need.BEHAVIOUR | Need.FAULTS:
                return self._without_behaviour(metric)

    def _without_latency(self, kind: str) -> str:
        if kind in self.latency:
            return ""
        if kind == RESPONSE and self.unbounded:
            return "response needs a schedule, and the rate is unbounded; judge transfer instead"
        return f"no {kind} latency was recorded in the measure phase"

    def _without_messages(self, metric: Metric) -> str:
        if self.shares_queue:
            return _SHARED_QUEUE
        if self.aggregates is None or (metric.needs is Need.RATES and self.aggregates.has_rates):
            return ""
        kept = " and ".join(self.aggregates.tables)
        return f"the source kept no messages, only {kept}: {metric.name} cannot be derived from them"

    def _without_behaviour(self, metric: Metric) -> str:
        if self.shares_queue:
            return _SHARED_QUEUE
        if self.recoveries is None:
            return "the recording is not complete, so its behaviour over time was not computed"
        return "no fault was caused in this run" if metric.needs is Need.FAULTS and not self.recoveries else ""

    def _without_rate(self, bound: Bound) -> str:
        if not self.rate.duration_ns:
            return "no measure phase was recorded"
        if self.unbounded and bound.endswith("of offered"):
            return "there is no offered rate to compare with: the rate is unbounded"
        if self.run_slice is not None and not self.rate.offered and bound.endswith("of offered"):
            return "there is no offered rate to compare with: it is unknown"
        return ""

    @cached_property
    def _measured(self) -> dict[str, tuple[float | None, str]]:
        return {metric.name: self.measure(metric) for metric in self.metrics}

    def measure(self, metric: Metric) -> tuple[float | None, str]:
        """The value, and what went wrong with a metric of another package: its faults make one check invalid."""
        if self.run_slice is not None and metric.table:
            return None, ""  # the table is that of the whole run
        if METRICS.get(metric.name) is metric:
            return metric.value(self), ""
        try:
            value = metric.value(self)
            number = None if value is None else float(value)
        except Exception as err:  # whatever the package's own code raises
            return None, f"{metric.name} cannot be computed: {type(err).__name__}: {err}"
        if number is not None and not math.isfinite(number):
            return None, f"{metric.name} cannot be computed: {number} is not a finite number"
        return number, ""


def _without_rows(metric: Metric) -> str:
    return f"the table {metric.table} of this run has no such value" if metric.table else ""


def _less_unrecorded(row: Latency) -> Latency:
    """The latencies, less what a receiver may have been late without recording it."""
    if row.kind == SETTLE:
        return row

    def less(value_ns: float) -> int:
        return max(int(value_ns) - READ_DELAY_FLOOR_NS, min(int(value_ns), 0))

    return structs.replace(
        row,
        min_ns=less(row.min_ns),
        max_ns=less(row.max_ns),
        mean_ns=less(row.mean_ns),
        percentiles_ns={name: None if ns is None else less(ns) for name, ns in row.percentiles_ns.items()},
    )
