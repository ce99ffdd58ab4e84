"""What was measured, and what is it called in a check?

Everything that a verdict is based on, as one frozen value: the recording's manifest and the small results of the
tables. Metrics compute their values from it; see `model.metrics`. Judges nothing.
"""

import math
from dataclasses import dataclass
from functools import cached_property

from crescendo.model.experiment import Experiment
from crescendo.model.metrics import LOST, LOST_ACKNOWLEDGED, METRICS, RESPONSE, Metric, Need, metric_of
from crescendo.model.mlmq_clients import CLIENT
from crescendo.model.peer_statistics import PeerStatistics
from crescendo.model.verdict import Bound
from crescendo.pipeline.source.imported_counts import ImportedCounts
from crescendo.record.manifest import Manifest
from crescendo.record.summary import Latency, Ledger, Rate


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

    @cached_property
    def checks(self) -> dict[str, Bound]:
        """The checks to judge. Lost acknowledged messages are always judged, unless a check allows for them."""
        checks = self.experiment.effective_checks
        if self.total.lost_acknowledged and not checks.keys() & {LOST, LOST_ACKNOWLEDGED}:
            checks = {**checks, LOST_ACKNOWLEDGED: Bound.parse(0)}
        return checks

    @cached_property
    def metrics(self) -> list[Metric]:
        """The metrics of the checks, in their order."""
        return [metric_of(name) for name in self.checks]

    @cached_property
    def unbounded(self) -> bool:
        free = any(group.senders and not group.rate for group in self.experiment.workload)
        return free or not self.experiment.workload  # clients alone have no schedule

    @property
    def counts(self) -> Ledger | None:
        """None for an import whose source kept no messages."""
        return self.total if self.aggregates is None else None

    @cached_property
    def statistics(self) -> dict[str, PeerStatistics]:
        """What peers measured about themselves."""
        return {peer.id: peer.statistics for peer in self.manifest.peers}

    @cached_property
    def violations(self) -> float | None:
        """Violations that clients found among their own messages; None unless every client process reported them."""
        reported = [peer.statistics.violations for peer in self.manifest.peers if peer.role == CLIENT]
        known = [violations for violations in reported if violations is not None]
        return sum(known) if reported and len(known) == len(reported) else None

    def value_of(self, metric: Metric) -> float | None:
        """The measured value in base units, or None if there is none."""
        return self._measured[metric.name][0]

    def unmeasured(self, metric: Metric, bound: Bound) -> str:
        """Why a metric has no value in this run; empty if it has one."""
        return self._missing(metric, bound) or self._measured[metric.name][1]

    def _missing(self, metric: Metric, bound: Bound) -> str:
        match metric.needs:
            case Need.NOTHING:
                return ""
            case Need.LATENCIES:
                return self._without_latency("" if metric.latency is None else metric.latency.kind)
            case Need.RATES:
                return self._without_messages(metric) or self._without_rate(bound)
            case Need.MESSAGES:
                return self._without_messages(metric)

    def _without_latency(self, kind: str) -> str:
        if kind in self.latency:
            return ""
        if kind == RESPONSE and self.unbounded:
            return "response needs a schedule, and the rate is unbounded; judge transfer instead"
        return f"no {kind} latency was recorded in the measure phase"

    def _without_messages(self, metric: Metric) -> str:
        if self.aggregates is None or (metric.needs is Need.RATES and self.aggregates.has_rates):
            return ""
        kept = " and ".join(self.aggregates.tables)
        return f"the source kept no messages, only {kept}: {metric.name} cannot be derived from them"

    def _without_rate(self, bound: Bound) -> str:
        if not self.rate.duration_ns:
            return "no measure phase was recorded"
        if self.unbounded and bound.endswith("of offered"):
            return "there is no offered rate to compare with: the rate is unbounded"
        return ""

    @cached_property
    def _measured(self) -> dict[str, tuple[float | None, str]]:
        return {metric.name: self._measure(metric) for metric in self.metrics}

    def _measure(self, metric: Metric) -> tuple[float | None, str]:
        """The value, and what went wrong with a metric of another package: its faults make one check invalid."""
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
