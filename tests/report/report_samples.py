"""Sample runs for the report, with known answers.

Writes manifest, summary and tables of synthetic runs with pyarrow, without the pipeline. Latencies are drawn from a
seeded generator; percentiles in the summary come from NumPy's order statistics, not from histogram buckets.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from crescendo.model.experiment_file import experiment_from, to_document
from crescendo.model.histogram import bucket_of
from crescendo.model.metrics import PERCENTILES
from crescendo.model.peer_statistics import PeerStatistics
from crescendo.model.verdict import Bound, Check, judge, judge_check
from crescendo.record.manifest import (
    Clock,
    ConnectionRecord,
    Manifest,
    PartRecord,
    PeerRecord,
    Phase,
    State,
    write_manifest,
)
from crescendo.record.summary import TABLES_DIR, Latency, Ledger, Rate, Summary, Validity, write_summary

SECOND_NS = 10**9
ORIGIN_NS = 4_000 * SECOND_NS
STARTED_NS = 1_893_553_445 * SECOND_NS  # 2030-01-02 03:04:05 UTC
SENDERS = 5
RATE = 1_000
WARMUP_S, MEASURE_S = 2, 10
STALLED_SECOND = 6
LOST_PEER = "lost sender-1: no heartbeat for 6 s"
QUEUE = "queue://perf"

Latencies = dict[str, tuple[np.ndarray, np.ndarray]]
"""kind -> the second and the latency of every message"""

_TYPES = {"l": pa.int64(), "i": pa.int32(), "s": pa.string(), "b": pa.bool_()}
_COLUMNS = {
    "throughput": "second:l role:s connection:i messages:l bytes:l",
    "latency_histogram": "second:l phase:s kind:s bucket:i count:l sum_ns:l min_ns:l max_ns:l",
    "ledger_ranges": "kind:s subscription:s sender:i first_seq:l last_seq:l acknowledged:b count:l",
}


@dataclass(frozen=True)
class Sample:
    """One synthetic run."""

    name: str
    bounded: bool = True
    empty: bool = False
    stall: bool = False
    lost: tuple[tuple[int, int, int], ...] = ()  # sender, first_seq, last_seq
    duplicated: tuple[tuple[int, int, int], ...] = ()
    lost_peer: bool = False
    negative: int = 0
    ceiling_percent: float | None = None
    clock_bound_ns: int = 0

    @property
    def per_connection(self) -> int:
        """Messages per second and connection."""
        return 0 if self.empty else RATE if self.bounded else 6 * RATE

    @property
    def seconds(self) -> int:
        """How long messages were sent: a lost peer ends the run early."""
        return WARMUP_S + (4 if self.lost_peer else MEASURE_S)


SAMPLES = {
    sample.name: sample
    for sample in (
        Sample("passing", ceiling_percent=12.0),
        Sample(
            "failing",
            stall=True,
            lost=((0, 4_210, 4_388), (3, 77, 77), *((4, n * 100, n * 100 + 2) for n in range(60))),
            duplicated=((2, 900, 905),),
        ),
        Sample("invalid", lost_peer=True),
        Sample("unbounded", bounded=False, negative=17, clock_bound_ns=180_000),
        Sample("empty", empty=True),
    )
}


def write_sample(run_dir: Path, sample: Sample) -> Path:
    """Write one run; returns its directory."""
    run_dir.mkdir(parents=True, exist_ok=True)
    latencies = {} if sample.empty else latencies_of(sample)
    write_table(run_dir, "throughput", _throughput(sample))
    write_table(run_dir, "latency_histogram", _histogram(latencies))
    write_table(run_dir, "ledger_ranges", _ranges(sample))
    write_summary(run_dir, _summary(sample, latencies))
    write_manifest(run_dir, _manifest(sample))
    return run_dir


def write_table(run_dir: Path, name: str, rows: list[dict[str, Any]]) -> None:
    """Two parts and a marker, as Spark would write them."""
    folder = run_dir / TABLES_DIR / name
    folder.mkdir(parents=True, exist_ok=True)
    schema = pa.schema([(column[:-2], _TYPES[column[-1]]) for column in _COLUMNS[name].split()])
    for number, part in enumerate((rows[::2], rows[1::2])):
        pq.write_table(pa.Table.from_pylist(part, schema=schema), folder / f"part-{number}.parquet")
    (folder / "_SUCCESS").touch()


def latencies_of(sample: Sample) -> Latencies:
    """The latency of every message of a sample."""
    draw = np.random.default_rng(7)
    second = np.repeat(np.arange(sample.seconds), SENDERS * sample.per_connection)
    transfer = draw.lognormal(np.log(420_000), 0.35, second.size).astype(np.int64)
    transfer[draw.integers(0, second.size, 40)] *= 9
    stalled = np.flatnonzero(second == STALLED_SECOND)
    if sample.stall:
        transfer[stalled] += np.linspace(SECOND_NS, 0, stalled.size).astype(np.int64)
    transfer[stalled[: sample.negative]] = -1_000
    settle = draw.lognormal(np.log(310_000), 0.3, second.size).astype(np.int64)
    latencies = {"transfer": (second, transfer), "settle": (second, settle)}
    if sample.bounded:
        latencies["response"] = (second, transfer + draw.exponential(90_000, second.size).astype(np.int64))
    return latencies


def _throughput(sample: Sample) -> list[dict[str, Any]]:
    rows = []
    for second in range(sample.seconds if sample.per_connection else 0):
        for role in ("sender", "receiver"):
            messages = sample.per_connection
            if sample.stall and role == "receiver":  # nothing arrives during the stall, twice as much after it
                messages *= {STALLED_SECOND: 0, STALLED_SECOND + 1: 2}.get(second, 1)
            rows += [
                {"second": second, "role": role, "connection": n, "messages": messages, "bytes": messages * 256}
                for n in range(SENDERS)
                if messages
            ]
    return rows


def _histogram(latencies: Latencies) -> list[dict[str, Any]]:
    rows = []
    for kind, (second, latency_ns) in latencies.items():
        bucket = bucket_of(latency_ns)
        order = np.lexsort((bucket, second))
        edges = np.flatnonzero(np.diff(second[order]) | np.diff(bucket[order])) + 1
        for group in np.split(order, edges):
            at, values = int(second[group[0]]), latency_ns[group]
            row = {"second": at, "phase": "warmup" if at < WARMUP_S else "measure", "kind": kind}
            row |= {"bucket": int(bucket[group[0]]), "count": values.size, "sum_ns": int(values.sum())}
            rows.append(row | {"min_ns": int(values.min()), "max_ns": int(values.max())})
    return rows


def _ranges(sample: Sample) -> list[dict[str, Any]]:
    return [
        {"kind": kind, "subscription": QUEUE, "sender": sender, "first_seq": first, "last_seq": last}
        | {"acknowledged": True if kind == "lost" else None, "count": last - first + 1}
        for kind, found in (("lost", sample.lost), ("duplicated", sample.duplicated))
        for sender, first, last in reversed(found)
    ]


def _summary(sample: Sample, latencies: Latencies) -> Summary:
    latency = [
        _latency_row(phase, kind, values[(second < WARMUP_S) == (phase == "warmup")])
        for kind, (second, values) in sorted(latencies.items())
        for phase in ("warmup", "measure")
    ]
    total = _ledger_row(sample, "total", None)
    doubts = [LOST_PEER] if sample.lost_peer else []
    offered = float(SENDERS * RATE) if sample.bounded else 0.0
    carried = float(SENDERS * sample.per_connection)
    response = next((row for row in latency if (row.phase, row.kind) == ("measure", "response")), None)
    p99_ns = response.percentiles_ns["p99"] if response else None
    checks = [
        _check("lost", "== 0", total.lost, offered, doubts),
        _check("rate", ">= 0.99 of offered" if sample.bounded else "> 0", carried, offered, doubts),
    ]
    if sample.bounded:
        checks.append(_check("response_p99", "<= 200ms", p99_ns, offered, doubts))
    senders = [_ledger_row(sample, "sender", number) for number in range(SENDERS)]
    return Summary(
        run=f"{sample.name}-20300102-030405",
        state="incomplete" if sample.lost_peer else "sealed",
        verdict=judge(checks, ["nothing was sent"] if sample.empty else []),
        validity=_validity(sample),
        rate=Rate(
            offered=offered, sent=carried, sustained=carried, duration_ns=MEASURE_S * SECOND_NS,
            bytes_per_second=carried * 256,
        ),
        latency=latency,
        ledger=[total, _ledger_row(sample, "subscription", None), *senders],
        clock_bound_ns=sample.clock_bound_ns,
        ceiling_percent=sample.ceiling_percent,
        batch_share=None if sample.empty else 0.998,
    )  # fmt: skip


def _check(metric: str, bound: str, value: float | None, offered: float, doubts: list[str]) -> Check:
    return judge_check(metric, Bound.parse(bound), value, offered=offered, reasons=list(doubts))


def _latency_row(phase: str, kind: str, values: np.ndarray) -> Latency:
    percentiles: dict[str, int | None] = {}
    for name, percent in PERCENTILES.items():
        value = int(np.percentile(values, percent, method="inverted_cdf"))
        percentiles[name] = value if values.size * (100 - percent) / 100 >= 10 else None
    return Latency(
        phase=phase, kind=kind, count=values.size, min_ns=int(values.min()), max_ns=int(values.max()),
        mean_ns=float(values.mean()), negative=int((values < 0).sum()), percentiles_ns=percentiles,
    )  # fmt: skip


def _ledger_row(sample: Sample, scope: str, sender: int | None) -> Ledger:
    def messages(found: tuple[tuple[int, int, int], ...]) -> int:
        return sum(last - first + 1 for owner, first, last in found if sender in {None, owner})

    sent = sample.per_connection * sample.seconds * (SENDERS if sender is None else 1)
    return Ledger(
        scope=scope, sender=sender, subscription=QUEUE if scope == "subscription" else None,
        sent=sent, owed=sent, settled=sent, delivered=sent - messages(sample.lost),
        lost_acknowledged=messages(sample.lost), lost_unacknowledged=0, duplicated=messages(sample.duplicated),
        reordered=0, corrupt=0, stray=0, unrecorded=0,
    )  # fmt: skip


def _validity(sample: Sample) -> list[Validity]:
    return [
        Validity("load was sent", not sample.empty, "nothing was sent" if sample.empty else "60,000 messages"),
        Validity("recording complete", not sample.lost_peer, LOST_PEER if sample.lost_peer else "sealed"),
        Validity("every part intact", True, "12 parts match their hashes"),
        Validity("every peer finished", not sample.lost_peer, LOST_PEER if sample.lost_peer else "3 peers"),
        Validity("generator kept up", True, "lateness p99 0.31 ms is 0.2 % of the judged 200 ms"),
        Validity("clock bound", True, f"{sample.clock_bound_ns} ns"),
        Validity("enough samples", True, "every judged percentile has at least 10 samples beyond it"),
    ]


def _manifest(sample: Sample) -> Manifest:
    group = {"address": QUEUE, "senders": SENDERS, "receivers": SENDERS, "rate": RATE if sample.bounded else 0}
    experiment = experiment_from(
        {"name": f"broker-latency-{sample.name}", "workload": group, "phases": {"drain": "5s"}}
    )
    statistics = {"lateness_p50_ns": 140_000.0, "lateness_p99_ns": 310_000.0, "blocked_share": 0.012}
    first = PeerStatistics(**statistics, cpu_seconds=4.31)
    receiver = {"busy_share": 0.41, "batch_share": 0.998, "cpu_seconds": 5.21, "messages": 60_000.0}
    ends = [0, WARMUP_S, WARMUP_S + MEASURE_S, WARMUP_S + MEASURE_S + 5]
    parts = [] if sample.empty else [("sent", 61_400), ("settled", 20_200), ("received", 190_700)]
    return Manifest(
        run=f"{sample.name}-20300102-030405",
        tag=77,
        experiment=to_document(experiment),
        command=["crescendo", "run", "experiments/quick/amqp10.yml", "--set", "workload.address=queue://my perf"],
        started_ns=STARTED_NS,
        state=State.INCOMPLETE if sample.lost_peer else State.SEALED,
        reason=LOST_PEER if sample.lost_peer else "",
        versions={"crescendo": "0.1.0", "python": "3.11.2", "pyspark": "4.3.0", "pyarrow": "25.0.1"},
        host={
            "name": "lab-07", "kernel": "Linux 6.1.0", "cpu": "AMD EPYC 7763", "cores": 8,
            "memory_bytes": 33_500_000_000, "load": {"one_minute": 0.42},
        },
        system={"kind": "loopback", "version": "0.1.0", "pid": 4711},
        clocks=[Clock("lab-07", STARTED_NS - ORIGIN_NS, bound_ns=sample.clock_bound_ns)],
        peers=[
            PeerRecord("sender-0", "sender", "lab-07", 101, "finished", "", first),
            PeerRecord("sender-1", "sender", "lab-07", 102, "lost", "no heartbeat for 6 s")
            if sample.lost_peer
            else PeerRecord("sender-1", "sender", "lab-07", 102, "finished", statistics=PeerStatistics(**statistics)),
            PeerRecord("receiver-0", "receiver", "lab-07", 103, "finished", statistics=PeerStatistics(**receiver)),
        ],
        connections=[
            ConnectionRecord(number, role, f"{role}-{number % 2 * (role == 'sender')}", "main", QUEUE, "perf", QUEUE)
            for role in ("sender", "receiver")
            for number in range(SENDERS)
        ],
        phases=[
            Phase(name, ORIGIN_NS + start * SECOND_NS, ORIGIN_NS + end * SECOND_NS)
            for name, start, end in zip(("warmup", "measure", "drain"), ends[:-1], ends[1:], strict=True)
        ],
        files=[PartRecord(f"{table}/p-0.parquet", table, "p", 60_000, octets, "00" * 32) for table, octets in parts],
    )  # fmt: skip
