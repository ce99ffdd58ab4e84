"""The tables of inspectors, with known values: written with pyarrow, without the pipeline."""

import math
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from crescendo.record.summary import TABLES_DIR
from report_samples import MEASURE_S, ORIGIN_NS, SECOND_NS, WARMUP_S

BROKER, PROCESS = "inspector-artemis", "inspector-process"
GAP_S = (6.2, 8.1)
QUEUES = 200

Key = tuple[str, str, str]


def curves() -> dict[Key, list[tuple[float, float]]]:
    """(source, entity, metric) -> second and value of every reading: a leaking heap, oscillating queues."""
    found: dict[Key, list[tuple[float, float]]] = {}
    for step in range(-2, 2 * (WARMUP_S + MEASURE_S)):
        t = step / 2
        found.setdefault((PROCESS, "process", "cpu_cores"), []).append((t, 1.4 + 0.3 * math.sin(step)))
        found.setdefault((PROCESS, "process", "rss_bytes"), []).append((t, 9e8 + 1e6 * math.cos(step)))
        if GAP_S[0] <= t < GAP_S[1]:
            continue
        found.setdefault((BROKER, "memory/heap", "used"), []).append((t, 4e8 + 3e7 * t))
        found.setdefault((BROKER, "memory/heap", "max"), []).append((t, 2e9))
        found.setdefault((BROKER, "broker", "ConnectionCount"), []).append((t, 10.0 if t >= 0 else 1.0))
        found.setdefault((BROKER, "broker", "TotalMessagesAdded"), []).append((t, max(t, 0) * 5_000))
        for queue in range(QUEUES):
            depth = float((step * step * (queue + 3)) % 17 * (QUEUES - queue))
            found.setdefault((BROKER, f"queue/perf.{queue}", "MessageCount"), []).append((t, depth))
            found.setdefault((BROKER, f"queue/perf.{queue}", "DeliveringCount"), []).append((t, depth // 3))
    return found


def write_readings(run_dir: Path) -> Path:
    """Add the tables of readings to a run."""
    wide: dict[tuple[str, str, int], dict[str, float]] = {}
    summary = []
    for (source, entity, metric), readings in curves().items():
        for t, value in readings:
            wide.setdefault((source, entity, ORIGIN_NS + int(t * SECOND_NS)), {})[metric] = value
        t, values = np.array([reading for reading in readings if WARMUP_S <= reading[0] < WARMUP_S + MEASURE_S]).T
        slope, _ = np.polyfit(t, values, 1)
        r2 = float(np.corrcoef(t, values)[0, 1] ** 2) if values.min() < values.max() else None
        summary.append(
            {"run": "r", "source": source, "entity": entity, "metric": metric, "samples": len(t)}
            | {"first": values[0], "last": values[-1], "min": values.min(), "mean": values.mean()}
            | {"peak": values.max(), "slope": slope, "r2": r2}
        )
    metrics = sorted({metric for _, _, metric in curves()})
    rows = [
        {"run": "r", "source": source, "entity": entity, "t_ns": t_ns}
        | {metric: values.get(metric) for metric in metrics}
        for (source, entity, t_ns), values in wide.items()
    ]
    gap = {
        "source": BROKER, "reason": "connection refused <b>",
        "start_ns": ORIGIN_NS + int(GAP_S[0] * SECOND_NS), "end_ns": ORIGIN_NS + int(GAP_S[1] * SECOND_NS),
    }  # fmt: skip
    for name, table in (("readings", rows[::-1]), ("reading_summary", summary), ("reading_gaps", [gap])):
        folder = run_dir / TABLES_DIR / name
        folder.mkdir(parents=True)
        pq.write_table(pa.Table.from_pylist(table), folder / "part-0.parquet")
    return run_dir
