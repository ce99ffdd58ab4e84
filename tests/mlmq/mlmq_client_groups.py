"""Client groups of MLMQ workloads for tests: run in this process, recorded for real, read back with DuckDB."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from time import monotonic_ns
from typing import Any

import duckdb

from crescendo.mlmq.workloads.assignment import client_identities, workload_assignment
from crescendo.mlmq.workloads.client_group import ClientGroup
from crescendo.mlmq.workloads.recording import WorkloadRecording
from crescendo.model.experiment import Experiment
from crescendo.model.experiment_file import experiment_from
from crescendo.record.writer import Recorder

TAG = 77
SECOND_NS = 10**9


def experiment_of(clients: list[dict[str, Any]], measure: str = "1s", drain: str = "20s", **more: Any) -> Experiment:
    phases = {"warmup": "0s", "measure": measure, "drain": drain}
    return experiment_from({"name": "t", "system": {"kind": "mlmq"}, "clients": clients, "phases": phases, **more})


class ClientGroupRun:
    """One client process, and afterwards its account and its recording."""

    def __init__(self, brokers: list[str], run_dir: Path, experiment: Experiment, process: int = 0) -> None:
        self.run_dir = run_dir
        self.recorder = Recorder(run_dir, f"client-{process}")
        self.recording = WorkloadRecording(self.recorder)
        assignment = workload_assignment(TAG, brokers, experiment, process, (0, 0))
        self.group = ClientGroup(client_identities(assignment, experiment), brokers, TAG, experiment, self.recording)

    @property
    def findings(self) -> Any:
        return self.group.findings

    async def run(self, meanwhile: Callable[[], Any] | None = None) -> "ClientGroupRun":
        """From the first connection to the last close; `meanwhile` is awaited during the run."""
        await self.group.connect()
        other = asyncio.ensure_future(meanwhile()) if meanwhile else None
        try:
            await self.group.run(monotonic_ns(), lambda: False, lambda now_ns: None)
            if other:
                await other
        finally:
            await self.group.close()
            self.recording.flush()
            self.recorder.close()
        return self

    def end_now(self) -> None:
        """Start nothing new from now on; allow half a minute for requests in flight."""
        times, now_ns = self.group.actors[0].times, monotonic_ns()
        times.end_ns, times.give_up_ns, times.over_ns = now_ns, now_ns + 30 * SECOND_NS, now_ns + 60 * SECOND_NS

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        """Query the recording; tables are named in braces."""
        names = ("sent", "settled", "received", "spans")
        tables = {name: f"read_parquet('{self.run_dir}/{name}/*.parquet')" for name in names}
        return duckdb.sql(query.format(**tables)).fetchall()

    def assert_conserved(self) -> None:
        """By their own account, and by an independent check of the recording."""
        texts = json.dumps([self.findings.violation_texts, self.findings.unresolved_texts])
        assert (self.findings.violations, self.findings.unresolved) == (0, 0), texts
        assert self.rows("select sender, first_seq from {settled} except select sender, seq from {received}") == []
        assert self.rows("select sender, seq from {received} except select sender, seq from {sent}") == []
        twice = "select sender, seq from {received} where flags & 1 = 0 group by all having count(*) > 1"
        assert self.rows(twice) == []
