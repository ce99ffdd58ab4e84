"""Synthetic analysed runs: summaries and tables written directly, with known answers."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from msgspec import structs

from crescendo.model.experiment_file import experiment_from, to_document
from crescendo.model.histogram import bucket_of
from crescendo.model.verdict import Outcome, Verdict
from crescendo.pipeline.latency.table import latencies, latency_table
from crescendo.record.manifest import Manifest, Phase, State, write_manifest
from crescendo.record.summary import Ledger, Rate, Summary, Validity, write_summary

SECOND_NS = 10**9
SECONDS = 40
_FILE = "part-00000.parquet"


@dataclass(frozen=True)
class SyntheticRun:
    """One synthetic run. Latencies are log-normal; `variation` is the variation of the median from run to run."""

    seed: int
    median_ns: float = 1e6
    variation: float = 0.02
    rate: float = 1000.0
    rate_variation: float = 0.001
    lost: int = 0
    name: str = "made"
    state: State = State.SEALED
    validity: tuple[Validity, ...] = ()
    settings: dict[str, Any] | None = None
    bound_ns: int = 0
    own_delay_share: float | None = None  # of every latency; None: not recorded
    undelivered: int = 0

    def write(self, run_dir: Path) -> Path:
        random = np.random.default_rng(self.seed)
        median_ns = self.median_ns * np.exp(random.normal(0, self.variation))
        rate = self.rate * np.exp(random.normal(0, self.rate_variation))
        per_second = random.normal(rate, rate * 0.005, SECONDS).round().astype(np.int64)
        samples = [random.lognormal(np.log(median_ns), 0.4, count).astype(np.int64) for count in per_second]
        run_dir.mkdir(parents=True)
        _write(run_dir, "latency_histogram", _histogram(samples))
        _write(run_dir, "throughput", _throughput(per_second))
        document = {"name": self.name, "workload": {"rate": self.rate}, **(self.settings or {})}
        phase = Phase("measure", 0, SECONDS * SECOND_NS)
        experiment = to_document(experiment_from(document))
        manifest = Manifest(run_dir.name, self.seed, experiment, [], 0, state=self.state, phases=[phase])
        write_manifest(run_dir, manifest)
        write_summary(run_dir, self._summary(run_dir, per_second))
        return run_dir

    def _summary(self, run_dir: Path, per_second: np.ndarray) -> Summary:
        sent = int(per_second.sum()) + self.lost
        counts = dict.fromkeys(Ledger.__struct_fields__[3:], 0)
        counts |= {
            "undelivered": self.undelivered,
            "sent": sent,
            "owed": sent,
            "delivered": sent - self.lost,
            "lost_unacknowledged": self.lost,
        }
        histogram = run_dir / "tables" / "latency_histogram" / _FILE
        (measured,) = latencies(latency_table([histogram]), ["measure"])
        share = self.own_delay_share
        less = (
            {}
            if share is None
            else {name: int((value or 0) * (1 - share)) for name, value in measured.percentiles_ns.items()}
        )
        return Summary(
            run=run_dir.name,
            state=self.state.value,
            verdict=Verdict(Outcome.PASS, []),
            validity=list(self.validity),
            rate=Rate(self.rate, float(per_second.mean()), float(per_second.mean()), SECONDS * SECOND_NS, 0.0),
            latency=[measured],
            without_own_delay=[structs.replace(measured, percentiles_ns=less)] if less else [],
            ledger=[Ledger("total", None, None, **counts)],
            clock_bound_ns=self.bound_ns,
        )  # fmt: skip


def _histogram(samples: list[np.ndarray]) -> pa.Table:
    second = np.repeat(np.arange(len(samples)), [values.size for values in samples])
    values = np.concatenate(samples)
    bucket = bucket_of(values)
    order = np.lexsort((values, bucket, second))
    second, bucket, values = second[order], bucket[order], values[order]
    starts = np.flatnonzero(np.diff(second, prepend=-1) | np.diff(bucket, prepend=-1))
    ends = np.append(starts[1:], values.size)
    size = starts.size
    columns = {"second": second[starts], "phase": ["measure"] * size, "kind": ["response"] * size}
    counts = {
        "bucket": bucket[starts].astype(np.int32),
        "count": ends - starts,
        "sum_ns": np.add.reduceat(values, starts),
    }
    return pa.table(columns | counts | {"min_ns": values[starts], "max_ns": values[ends - 1]})


def _throughput(per_second: np.ndarray) -> pa.Table:
    size = per_second.size
    return pa.table(
        {
            "second": np.arange(size),
            "role": ["receiver"] * size,
            "connection": np.zeros(size, np.int32),
            "messages": per_second,
            "bytes": per_second * 100,
        }
    )


def _write(run_dir: Path, table: str, rows: pa.Table) -> None:
    folder = run_dir / "tables" / table
    folder.mkdir(parents=True)
    pq.write_table(rows, folder / _FILE)
