"""What is the result of a run, in one small file?

`RUN/summary.json` is written by the pipeline and read by reports, the command line and other programs. Times are
nanoseconds, rates are messages per second. A number without sound evidence is null, never a guess.
"""

from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Struct

from crescendo.model.verdict import Outcome, Verdict
from crescendo.record.documents import read_document, write_document

SCHEMA = 1
SUMMARY = "summary.json"
TABLES_DIR = "tables"


class Validity(Struct, frozen=True):
    """One condition that must hold before the numbers mean anything."""

    name: Annotated[str, "the condition, such as `generator kept up`"]
    holds: Annotated[bool, "whether it holds, for the run and for every slice that a check names"]
    detail: Annotated[str, "what was found; a slice is named before its finding"]
    noted: Annotated[bool, "whether it holds narrowly, or no check depends on it"] = False


class Latency(Struct, frozen=True):
    """One kind of latency in one phase. A percentile with too few samples beyond it is withheld.

    A percentile has the lower and the upper end of its 95 % interval, or a reason why there is none.
    """

    phase: Annotated[str, "name of the phase, or `outside`"]
    kind: Annotated[str, "`response`, `transfer`, `settle`, `lateness`, `round trip` or `one way`"]
    count: Annotated[int, "samples"]
    min_ns: Annotated[int, "smallest sample"]
    max_ns: Annotated[int, "largest sample"]
    mean_ns: Annotated[float, "mean of the samples"]
    negative: Annotated[int, "samples below zero, which only clock error explains"]
    percentiles_ns: Annotated[dict[str, int | None], "`p50` to `p99.99`; null if fewer than ten samples lie beyond it"]
    intervals_ns: Annotated[dict[str, tuple[int, int]], "the ends of the 95 % interval of a percentile"] = {}
    no_interval: Annotated[dict[str, str], "why a percentile has no interval"] = {}


class Ledger(Struct, frozen=True):
    """Every message accounted for. `owed` is what subscriptions should have received: sent times fan-out."""

    scope: Annotated[str, "`total`, `sender` or `subscription`; in a slice, the scope of the slice"]
    sender: Annotated[int | None, "number of the sender"]
    subscription: Annotated[str | None, "name of the subscription"]
    sent: Annotated[int, "messages sent; a resent one counts once"]
    owed: Annotated[int, "sent, times the subscriptions of the address"]
    settled: Annotated[int, "messages that the system accepted"]
    delivered: Annotated[int, "owed messages that arrived at least once"]
    lost_acknowledged: Annotated[int, "accepted messages that never arrived"]
    lost_unacknowledged: Annotated[int, "other owed messages that never arrived"]
    duplicated: Annotated[int, "deliveries after the first of a message"]
    reordered: Annotated[int, "first deliveries out of order"]
    corrupt: Annotated[int, "deliveries with damaged content; a slice has those of the subscriptions that it uses"]
    stray: Annotated[int, "deliveries from another run; in a slice, the same"]
    unrecorded: Annotated[int, "messages that arrived without being owed"]
    undelivered: Annotated[int, "neither delivered nor lost: still arriving when the drain ended"] = 0

    @property
    def lost(self) -> int:
        return self.lost_acknowledged + self.lost_unacknowledged

    @property
    def unnamed(self) -> "Ledger":
        """The counts alone."""
        return msgspec.structs.replace(self, scope="", sender=None, subscription=None)


class Rate(Struct, frozen=True):
    """Messages per second in the measure phase. `sustained` is what arrived, divided by the fan-out."""

    offered: Annotated[float, "what was due; 0 when unbounded"]
    sent: Annotated[float, "what was sent"]
    sustained: Annotated[float, "what arrived, divided by the fan-out; the metric `rate`"]
    duration_ns: Annotated[int, "length of the measure phase; 0 if there was none"]
    bytes_per_second: Annotated[float, "payload of what arrived, divided by the fan-out"]
    without_own_delay: Annotated[float | None, "what would have arrived without own delay; null if unknown"] = None
    own_share: Annotated[
        float | None, "of the measure phase, in which the system did not hold an unbounded sender back"
    ] = None


class SliceResult(Struct, frozen=True):
    """The results of one group, destination or protocol; its latencies are those of the measure phase."""

    scope: Annotated[str, "`group`, `destination` or `protocol`"]
    name: Annotated[str, "as a check names it"]
    rate: Annotated[Rate, "its rate"]
    latency: Annotated[list[Latency], "its latencies in the measure phase"]
    ledger: Annotated[Ledger, "its account"]
    without_own_delay: Annotated[list[Latency], "its latencies, less own delay; empty if unknown"] = []
    is_whole: Annotated[bool, "whether it has every message of the run, and so the results of the run"] = False
    shares_queue: Annotated[
        bool, "whether other groups receive from its queues: rate and ledger are then those of the queues"
    ] = False
    outage_ns: Annotated[int | None, "its longest gap in deliveries, 0 without one; null if unknown"] = None

    def latency_of(self, kind: str) -> Latency | None:
        return next((row for row in self.latency if row.kind == kind), None)


class Summary(Struct, frozen=True):
    """The result of one run."""

    run: Annotated[str, "name of the run"]
    state: Annotated[str, "`sealed`, `interrupted` or `incomplete`"]
    verdict: Annotated[Verdict, "what may be claimed, and why"]
    validity: Annotated[list[Validity], "the conditions that the evidence must meet, always in the same order"]
    rate: Annotated[Rate, "the rate of the run"]
    latency: Annotated[list[Latency], "by phase and kind"]
    ledger: Annotated[list[Ledger], "the total first, then senders, then subscriptions"]
    clock_bound_ns: Annotated[int, "how far apart the clocks of the hosts may be"]
    ceiling_percent: Annotated[float | None, "of the generator's calibrated ceiling; null if not calibrated"] = None
    batch_share: Annotated[float | None, "of the messages on the fast path of the generator; null if unknown"] = None
    without_own_delay: Annotated[list[Latency], "latencies of the measure phase, less own delay; empty if unknown"] = []
    remarks: Annotated[list[str], "what a reader of the verdict must know besides"] = []
    slices: Annotated[list[SliceResult], "groups, then destinations, then protocols"] = []
    schema: Annotated[int, "version of this file"] = SCHEMA

    @property
    def total(self) -> Ledger:
        return next(row for row in self.ledger if row.scope == "total")

    @property
    def divisions(self) -> dict[str, list[SliceResult]]:
        """The slices by scope, without a scope that has one slice only, or the same ones as an earlier scope."""
        found: dict[str, list[SliceResult]] = {}
        shown: list[list[SliceResult]] = []
        for scope in dict.fromkeys(each.scope for each in self.slices):
            slices = [each for each in self.slices if each.scope == scope]
            # Results that are equal to the last digit are those of the same messages.
            same = [msgspec.structs.replace(each, scope="", name="", ledger=each.ledger.unnamed) for each in slices]
            if len(slices) > 1 and same not in shown:
                shown.append(same)
                found[scope] = slices
        return found

    @property
    def outcome_text(self) -> str:
        """The outcome as people read it: a pass that needs an explanation says so."""
        noted = self.remarks and self.verdict.outcome is Outcome.PASS
        return f"{self.verdict.outcome.value}, with remarks" if noted else self.verdict.outcome.value

    def latency_of(self, kind: str, phase: str = "measure") -> Latency | None:
        return next((row for row in self.latency if row.kind == kind and row.phase == phase), None)


def write_summary(run_dir: Path, summary: Summary) -> None:
    write_document(run_dir / SUMMARY, summary)


def read_summary(run_dir: Path) -> Summary:
    return read_document(
        run_dir / SUMMARY,
        Summary,
        noun="a summary",
        missing=f"{run_dir}: no such directory"
        if not run_dir.is_dir()
        else f"{run_dir}: not analysed yet; run: crescendo analyze {run_dir}",
        version_field="schema",
        version=SCHEMA,
        supported=f"{SCHEMA}; analyse the run again",
    )
