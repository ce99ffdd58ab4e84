"""The pipeline's tables of a run with an outage, with known values: written with pyarrow."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from crescendo.record.summary import TABLES_DIR
from report_samples import MEASURE_S, ORIGIN_NS, QUEUE, RATE, SECOND_NS, SENDERS, STALLED_SECOND, WARMUP_S

GAP_NS = 1_000_400_000
START_NS = ORIGIN_NS + STALLED_SECOND * SECOND_NS
EVIL = "send/<img src=x onerror=alert(1)>"


def statistics(mean_ns: float, count: int) -> dict[str, Any]:
    percentiles = {"p50": 0.9, "p90": 1.5, "p95": 1.8, "p99": 2.5, "p99.9": 4.0, "p99.99": None}
    values = {
        name + end: None if factor is None else int(mean_ns * factor)
        for name, factor in percentiles.items()
        for end in ("", "_low", "_high")
    }
    summary = {"count": count, "min_ns": -int(mean_ns), "max_ns": int(mean_ns * 9), "mean_ns": mean_ns}
    return summary | {"negative": 0} | values


def tables() -> dict[str, list[dict[str, Any]]]:
    seconds = range(WARMUP_S + MEASURE_S)
    backlog = [
        {"subscription": QUEUE, "second": second, "sent": SENDERS * RATE, "received": 0, "backlog": 3}
        | {"peak": SENDERS * RATE if second == STALLED_SECOND else 7}
        for second in seconds
    ]
    outage = {
        "subscription": QUEUE, "start_ns": START_NS, "end_ns": START_NS + GAP_NS, "gap_ns": GAP_NS,
        "earlier_rate": 5_000.0, "recovered_ns": GAP_NS, "area_lost": 5_002.0, "caught_up_ns": 700_000_000,
        "catch_up_messages": 8_500, "peak_rate": 12_345.0,
    }  # fmt: skip
    burst = {"subscription": QUEUE, "start_ns": START_NS, "messages": 4_250, "negative": 2_100, "inversions": 17}
    fault = {
        "t_ns": START_NS - 5_000_000, "second": 5, "source": "agent-0", "kind": "fault", "detail": "{}",
        "rate_before": 5_000.0, "rate_after": 4_000.0, "p99_before_ns": 900_000, "p99_after_ns": 990_000_000,
        "backlog_before": 2, "backlog_peak": 5_000, "outage_start_ns": START_NS, "outage_gap_ns": GAP_NS,
    }  # fmt: skip
    steady = [
        {"metric": metric, "state": state, "step_s": 1, "samples": 10, "median": median, "settled_after_s": 0}
        | {"s": 1, "z": 0.1, "p": p, "slope": slope, "slope_low": 0.0, "slope_high": 0.0, "change": change}
        for metric, state, median, p, slope, change in (
            ("rate", "steady", 5_000.0, 0.86, 0.0, 0.0),
            ("p99_ns", "steady", 900_000.0, 0.42, -1_200.0, -0.013),
            ("backlog", "rising", 3.0, 0.001, 0.5, 1.67),
        )
    ]
    tiers = [("send", 4_000_000.0), ("queue wait", 500_000.0), ("database", 2_600_000.0), (EVIL, 40_000.0)]
    spans = [
        {"phase": phase, "action": action, "outcome": None, "total_ns": 1000 * mean_ns, "share": mean_ns / 4_000_000}
        | statistics(mean_ns, 1000)
        for phase in ("warmup", "measure")
        for action, mean_ns in tiers
    ]
    timeouts = {"phase": "measure", "action": "send", "outcome": "timeout", "total_ns": 3e7, "share": 0.0075}
    little = {"mean_backlog": 2.14, "rate": 5_000.0, "mean_transfer_ns": 430_000.0, "rate_times_transfer": 2.15}
    return {
        "backlog": backlog[::-1],
        "little": [little | {"ratio": 0.995, "holds": True}],
        "outages": [outage],
        "bursts": [burst | {"receiver": receiver, "max_jitter_ns": GAP_NS, "length_ns": 1} for receiver in range(2)],
        "effects": [fault],
        "steady_state": steady,
        "jitter": [
            {"receiver": n, "mean_abs_ns": 41_000.0, "rfc3550_ns": 38_000.0} | statistics(10_000.0 * (n + 1), 9_999)
            for n in range(25)
        ],
        "spans": [*spans, timeouts | statistics(3_000_000.0, 10)],
    }


def write_behaviour(run_dir: Path, *names: str) -> Path:
    """Add these tables to a run, or all of them."""
    for name, rows in tables().items():
        if not names or name in names:
            folder = run_dir / TABLES_DIR / name
            folder.mkdir(parents=True)
            pq.write_table(pa.Table.from_pylist(rows), folder / "part-0.parquet")
    return run_dir
