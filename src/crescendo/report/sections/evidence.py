"""Which evidence supports the verdict?

Turns checks, latencies, the ledger and the peers' statistics into rows of text for the tables of the page. Every number
comes from the pipeline or the manifest; this module only formats and sorts.
"""

from dataclasses import dataclass

from crescendo.model.metrics import PERCENTILES, metric_position
from crescendo.model.verdict import Check
from crescendo.record.manifest import PeerRecord
from crescendo.record.summary import Latency, Ledger, Validity
from crescendo.record.timeline import MEASURE
from crescendo.report import formats
from crescendo.report.data.chart_tables import Ranges
from crescendo.report.sections.headline import ICONS, metric_name

_PHASE_NAMES = {"warmup": "warm-up"}
_STATISTICS_FIRST = (
    "lateness_p50_ns", "lateness_p99_ns", "own_delay_max_ns", "read_delay_max_ns", "stalled_ns", "blocked_share",
    "busy_share", "batch_share", "cpu_seconds",
)  # fmt: skip
_POINTS_IN_TIME = {"last_sent_ns"}
"""Statistics that are clock readings, not durations; they would mean nothing to a reader."""


@dataclass(frozen=True)
class CheckRow:
    metric: str
    bound: str
    limit: str
    value: str
    outcome: str
    icon: str
    reasons: list[str]


@dataclass(frozen=True)
class ValidityRow:
    name: str
    detail: str
    state: str  # holds, noted or fails

    @property
    def icon(self) -> str:
        return {"holds": "✓", "noted": "!", "fails": "✕"}[self.state]

    @property
    def spoken(self) -> str:
        return {"holds": "holds", "noted": "noted, no check depends on it", "fails": "does not hold"}[self.state]


@dataclass(frozen=True)
class Grid:
    """A table of text: `names` text columns, then numbers. From column `alarms` on, any value but 0 is highlighted.

    A table with a `scope` follows the range of time that a reader selects: rows with `times` are hidden outside it, and
    the script of the page computes the others again, by the `keys` of the rows.
    """

    columns: list[str]
    rows: list[list[str]]
    names: int = 1
    alarms: int | None = None
    scope: str = ""
    keys: list[str] | None = None
    units: list[str] | None = None
    times: list[tuple[float, float]] | None = None  # seconds since the start of the first phase


@dataclass(frozen=True)
class RangeList:
    """The exact sequence ranges of one kind of discrepancy."""

    kind: str
    total: int
    grid: Grid


def phase_name(name: str) -> str:
    return _PHASE_NAMES.get(name, name)


def check_rows(checks: list[Check]) -> list[CheckRow]:
    return [
        CheckRow(
            metric=metric_name(check.metric),
            bound=formats.bound(check.bound),
            limit=formats.metric_value(check.metric, check.limit) if "of offered" in check.bound else "",
            value=formats.metric_value(check.metric, check.value),
            outcome=str(check.outcome),
            icon=ICONS[check.outcome],
            reasons=check.reasons,
        )
        for check in checks
    ]


def validity_rows(validity: list[Validity]) -> list[ValidityRow]:
    """What does not hold first, then what is worth knowing."""
    order = ("fails", "noted", "holds")
    rows = [
        ValidityRow(item.name, item.detail, "noted" if item.noted else "holds" if item.holds else "fails")
        for item in validity
    ]
    return sorted(rows, key=lambda row: order.index(row.state))


def latency_grid(latency: list[Latency], without_own_delay: list[Latency]) -> Grid:
    """One row per phase and kind, the measure phase first, and one without own delay."""
    less = {(row.phase, row.kind): row for row in without_own_delay}
    rows = []
    for row in sorted(latency, key=lambda each: each.phase != MEASURE):
        rows.append(_latency_cells(row, row.kind))
        if (row.phase, row.kind) in less:
            rows.append(_latency_cells(less[row.phase, row.kind], f"{row.kind} without own delay"))
    return Grid(
        ["Phase", "Kind", "Samples", "min", *PERCENTILES, "max", "mean", "negative"], rows, names=2, scope="latency"
    )


def _latency_cells(row: Latency, kind: str) -> list[str]:
    percentiles = [row.percentiles_ns.get(name) for name in PERCENTILES]
    return [
        phase_name(row.phase),
        kind,
        formats.count(row.count),
        formats.nanoseconds(row.min_ns),
        *(formats.WITHHELD if value_ns is None else formats.nanoseconds(value_ns) for value_ns in percentiles),
        formats.nanoseconds(row.max_ns),
        formats.nanoseconds(row.mean_ns),
        formats.count(row.negative),
    ]


def interval_grid(latency: list[Latency]) -> Grid:
    """One row per phase and kind that has a percentile: the ends of its interval, or why there is none."""
    rows = []
    for row in latency:
        cells = [
            " to ".join(map(formats.nanoseconds, row.intervals_ns[name]))
            if name in row.intervals_ns
            else row.no_interval.get(name, formats.NOTHING)
            for name in PERCENTILES
        ]
        if row.intervals_ns or row.no_interval:
            rows.append([phase_name(row.phase), row.kind, *cells])
    return Grid(["Phase", "Kind", *PERCENTILES], rows, names=2)


def ledger_grid(ledger: list[Ledger], scope: str, names: dict[int, str]) -> Grid:
    """The rows of one scope. `names` maps the number of a sender to its peer."""
    title = {"total": "Scope", "subscription": "Subscription", "sender": "Sender"}[scope]
    rows = []
    for row in ledger:
        if row.scope != scope:
            continue
        name = {"total": "all messages", "subscription": row.subscription or formats.NOTHING}.get(scope)
        numbers = [
            row.sent, row.owed, row.settled, row.delivered, row.lost_acknowledged, row.lost_unacknowledged,
            row.undelivered, row.duplicated, row.reordered, row.corrupt, row.stray, row.unrecorded,
        ]  # fmt: skip
        rows.append([name or sender_name(row.sender, names), *(formats.count(number) for number in numbers)])
    columns = [
        title, "sent", "owed", "settled", "delivered", "lost acked", "lost unacked",
        "undelivered", "duplicated", "reordered", "corrupt", "stray", "unrecorded",
    ]  # fmt: skip
    return Grid(columns, rows, alarms=5)


def sender_name(sender: int | None, names: dict[int, str]) -> str:
    if sender is None:
        return formats.NOTHING
    return f"{sender} · {names[sender]}" if sender in names else str(sender)


def range_lists(ranges: list[Ranges], names: dict[int, str]) -> list[RangeList]:
    worst_first = sorted(ranges, key=lambda found: metric_position(found.kind))
    return [RangeList(found.kind, found.total, _range_grid(found, names)) for found in worst_first]


def _range_grid(found: Ranges, names: dict[int, str]) -> Grid:
    rows = []
    for row in found.rows:
        first, last = row.first_seq, row.last_seq
        # No thousands separators: readers paste these numbers into queries.
        span = str(first) if first == last else f"{first} – {last}"
        rows.append([row.subscription, sender_name(row.sender, names), span, formats.count(last - first + 1)])
    return Grid(["Subscription", "Sender", "Sequence numbers", "Messages"], rows, names=2)


def peer_grid(peers: list[PeerRecord]) -> Grid:
    """What each process measured about itself. A statistic without any value gets no column."""
    reported = {peer.id: peer.statistics.reported() for peer in peers}
    found = {key for values in reported.values() for key in values} - _POINTS_IN_TIME
    keys = [key for key in _STATISTICS_FIRST if key in found]
    keys += sorted(found - set(keys))
    rows = [
        [peer.id, peer.role, peer.ended] + [formats.fact(key, reported[peer.id].get(key)) for key in keys]
        for peer in peers
    ]
    return Grid(["Peer", "Role", "Ended", *(_statistic_name(key) for key in keys)], rows, names=3)


def _statistic_name(key: str) -> str:
    return {"cpu_seconds": "CPU seconds", "batch_share": "on the batch path", "blocked_share": "time blocked"}.get(
        key, formats.label(key)
    )
