"""What was measured, and what is it called in a check?

Everything that a verdict is based on, as one frozen value: the recording's manifest and the small results of the
tables. Returns the value of any metric that a check may name. Judges nothing.
"""

from dataclasses import dataclass
from functools import cached_property

from crescendo.model.experiment import Experiment
from crescendo.model.mlmq_clients import CLIENT
from crescendo.model.verdict import CONSERVATION, LATENCY_KINDS, PERCENTILES, Bound
from crescendo.pipeline.latency.samples import RESPONSE
from crescendo.pipeline.source.imported_counts import ImportedCounts
from crescendo.record.manifest import Manifest
from crescendo.record.summary import Latency, Ledger, Rate

RATE = "rate"
VIOLATIONS = "violations"


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
        if self.total.lost_acknowledged and not checks.keys() & {"lost", "lost_acknowledged"}:
            checks = {**checks, "lost_acknowledged": Bound.parse(0)}
        return checks

    @cached_property
    def unbounded(self) -> bool:
        free = any(group.senders and not group.rate for group in self.experiment.workload)
        return free or not self.experiment.workload  # clients alone have no schedule

    @cached_property
    def violations(self) -> float | None:
        """Violations that clients found among their own messages; None unless every client process reported them."""
        reported = [peer.statistics for peer in self.manifest.peers if peer.role == CLIENT]
        complete = reported and all(VIOLATIONS in each for each in reported)
        return sum(each[VIOLATIONS] for each in reported) if complete else None

    def value_of(self, metric: str) -> float | None:
        """The measured value in base units, or None if there is none."""
        kind, statistic = latency_metric(metric)
        if kind:
            row = self.latency.get(kind)
            if row is None:
                return None
            if statistic in PERCENTILES:
                return row.percentiles_ns[statistic]
            return float({"min": row.min_ns, "max": row.max_ns, "mean": row.mean_ns}[statistic])
        if metric == RATE:
            return self.rate.sustained if self.rate.duration_ns else None
        if metric == CONSERVATION:
            return self.violations
        if self.aggregates is not None:
            return None
        return float(getattr(self.total, metric))

    def unmeasured(self, metric: str, bound: Bound) -> str:
        """Why a metric cannot have a value in this run; empty if it can."""
        kind, _ = latency_metric(metric)
        if kind == RESPONSE and kind not in self.latency and self.unbounded:
            return "response needs a schedule, and the rate is unbounded; judge transfer instead"
        if kind and kind not in self.latency:
            return f"no {kind} latency was recorded in the measure phase"
        if self.aggregates is not None and not kind and (metric != RATE or not self.aggregates.has_rates):
            kept = " and ".join(self.aggregates.tables)
            return f"the source kept no messages, only {kept}: {metric} cannot be derived from them"
        if metric == RATE and not self.rate.duration_ns:
            return "no measure phase was recorded"
        if metric == RATE and self.unbounded and bound.endswith("of offered"):
            return "there is no offered rate to compare with: the rate is unbounded"
        return ""


def latency_metric(metric: str) -> tuple[str, str]:
    """Kind and statistic of a latency metric; two empty strings for any other."""
    kind, _, statistic = metric.partition("_")
    return (kind, statistic) if kind in LATENCY_KINDS else ("", "")
