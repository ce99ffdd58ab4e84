"""What is the result of a run, in one small file?

`RUN/summary.json` is written by the pipeline and read by reports, the command line and other programs. Times are
nanoseconds, rates are messages per second. A number without sound evidence is null, never a guess.
"""

from pathlib import Path

from msgspec import Struct

from crescendo.model.verdict import Verdict
from crescendo.record.documents import read_document, write_document

SCHEMA = 1
SUMMARY = "summary.json"
TABLES_DIR = "tables"


class Validity(Struct, frozen=True):
    """One condition that must hold before the numbers mean anything."""

    name: str
    holds: bool
    detail: str


class Latency(Struct, frozen=True):
    """One kind of latency in one phase. A percentile with too few samples beyond it is withheld."""

    phase: str
    kind: str
    count: int
    min_ns: int
    max_ns: int
    mean_ns: float
    negative: int
    percentiles_ns: dict[str, int | None]


class Ledger(Struct, frozen=True):
    """Every message accounted for. `owed` is what subscriptions should have received: sent times fan-out."""

    scope: str  # total, sender or subscription
    sender: int | None
    subscription: str | None
    sent: int
    owed: int
    settled: int
    delivered: int
    lost_acknowledged: int
    lost_unacknowledged: int
    duplicated: int
    reordered: int
    corrupt: int
    stray: int
    unrecorded: int

    @property
    def lost(self) -> int:
        return self.lost_acknowledged + self.lost_unacknowledged


class Rate(Struct, frozen=True):
    """Messages per second in the measure phase. `sustained` is what arrived, divided by the fan-out."""

    offered: float  # 0 when unbounded
    sent: float
    sustained: float
    duration_ns: int
    bytes_per_second: float


class Summary(Struct, frozen=True):
    """The result of one run."""

    run: str
    state: str
    verdict: Verdict
    validity: list[Validity]
    rate: Rate
    latency: list[Latency]
    ledger: list[Ledger]
    clock_bound_ns: int
    ceiling_percent: float | None = None  # share of the generator's calibrated ceiling; null when not calibrated
    batch_share: float | None = None
    schema: int = SCHEMA

    @property
    def total(self) -> Ledger:
        return next(row for row in self.ledger if row.scope == "total")

    def latency_of(self, kind: str, phase: str = "measure") -> Latency | None:
        return next((row for row in self.latency if row.kind == kind and row.phase == phase), None)


def write_summary(run_dir: Path, summary: Summary) -> None:
    write_document(run_dir / SUMMARY, summary)


def read_summary(run_dir: Path) -> Summary:
    return read_document(
        run_dir / SUMMARY,
        Summary,
        noun="a summary",
        missing=f"{run_dir}: not analysed yet; run: crescendo analyze {run_dir}",
        version_field="schema",
        version=SCHEMA,
        supported=f"{SCHEMA}; analyse the run again",
    )
