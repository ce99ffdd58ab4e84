"""Clients of MLMQ's workloads for tests: played in this process, recorded for real, read back with DuckDB."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from time import monotonic_ns
from typing import Any

import duckdb

from crescendo.mlmq.workloads.assignment import posts_of, workload_assignment
from crescendo.mlmq.workloads.client_group import ClientGroup
from crescendo.mlmq.workloads.recording import WorkloadRecording
from crescendo.model.experiment import Experiment, experiment_from
from crescendo.record.writer import Recorder

TAG = 77
SECOND_NS = 10**9


def experiment_of(clients: list[dict[str, Any]], measure: str = "1s", drain: str = "20s", **more: Any) -> Experiment:
    phases = {"warmup": "0s", "measure": measure, "drain": drain}
    return experiment_from({"name": "t", "system": {"kind": "mlmq"}, "clients": clients, "phases": phases, **more})


class Played:
    """One process of clients, and afterwards its books and its recording."""

    def __init__(self, brokers: list[str], run_dir: Path, experiment: Experiment, process: int = 0) -> None:
        self.run_dir = run_dir
        self.recorder = Recorder(run_dir, f"client-{process}")
        self.recording = WorkloadRecording(self.recorder)
        assignment = workload_assignment(f"client-{process}", str(run_dir), TAG, brokers, experiment, process, (0, 0))
        self.company = ClientGroup(posts_of(assignment, experiment), brokers, TAG, experiment, self.recording)

    @property
    def findings(self) -> Any:
        return self.company.findings

    async def play(self, beside: Callable[[], Any] | None = None) -> "Played":
        """From the first connection to the last; `beside` is awaited while they play."""
        await self.company.assemble()
        other = asyncio.ensure_future(beside()) if beside else None
        try:
            await self.company.perform(monotonic_ns(), lambda: False, lambda now_ns: None)
            if other:
                await other
        finally:
            await self.company.leave()
            self.recording.flush()
            self.recorder.close()
        return self

    def end_now(self) -> None:
        """Nothing new from now on; half a minute for each thing that is under way."""
        hours, now_ns = self.company.actors[0].hours, monotonic_ns()
        hours.end_ns, hours.give_up_ns, hours.over_ns = now_ns, now_ns + 30 * SECOND_NS, now_ns + 60 * SECOND_NS

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        """Ask the recording; a table is called by its name in braces."""
        names = ("sent", "settled", "received", "spans")
        tables = {name: f"read_parquet('{self.run_dir}/{name}/*.parquet')" for name in names}
        return duckdb.sql(query.format(**tables)).fetchall()

    def assert_conserved(self) -> None:
        """By their own books, and by a look at the recording that knows nothing of the books."""
        told = json.dumps([self.findings.violated, self.findings.untold])
        assert (self.findings.violations, self.findings.unresolved) == (0, 0), told
        assert self.rows("select sender, first_seq from {settled} except select sender, seq from {received}") == []
        assert self.rows("select sender, seq from {received} except select sender, seq from {sent}") == []
        twice = "select sender, seq from {received} where flags & 1 = 0 group by all having count(*) > 1"
        assert self.rows(twice) == []
