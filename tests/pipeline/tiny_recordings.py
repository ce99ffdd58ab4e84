"""Recordings of a few rows, whose results can be computed by hand.

Written with the recorder that peers use. Knows nothing of the pipeline.
"""

from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np

from crescendo.model.experiment import Experiment
from crescendo.model.experiment_file import recorded_experiment, to_document
from crescendo.model.peer_statistics import PeerStatistics
from crescendo.record.manifest import (
    Clock,
    ConnectionRecord,
    ExceededLimit,
    Manifest,
    PeerRecord,
    Phase,
    State,
    write_manifest,
)
from crescendo.record.reader import journalled_parts
from crescendo.record.schema import EVENTS, OWN_DELAY, READ_DELAY, RECEIVED, SENT, SETTLED, SPANS, Settlement
from crescendo.record.writer import Recorder

SECOND_NS = 10**9
START_NS = 50 * SECOND_NS
MEASURE_NS = START_NS + SECOND_NS  # after a second of warm-up
END_NS = MEASURE_NS + 4 * SECOND_NS
MS = 1_000_000

SENDER_PEER, RECEIVER_PEER = "sender-0", "receiver-0"
ACCOUNTED = {"sender-0": {"stalled_ns": 0.0}, "receiver-0": {"stalled_ns": 0.0, "busy_share": 0.1}}
"""Statistics of peers that kept account of their own delay."""

KEPT_UP = {"lateness_p50_ns": 10.0, "lateness_p99_ns": 20.0, "blocked_share": 0.5, "batch_share": 1.0}


@dataclass
class Tiny:
    """What to record. Rows are tuples in the order of the schema."""

    group: dict[str, Any] = field(default_factory=dict)
    more_groups: list[dict[str, Any]] = field(default_factory=list)  # their connections are numbered after its own
    checks: dict[str, Any] | None = None
    more_keys: dict[str, Any] = field(default_factory=dict)  # of the experiment
    sent: list[tuple[int, ...]] = field(default_factory=list)
    settled: list[tuple[int, ...]] = field(default_factory=list)
    received: list[tuple[int, ...]] = field(default_factory=list)
    own_delay: list[tuple[int, ...]] = field(default_factory=list)
    read_delay: list[tuple[int, ...]] = field(default_factory=list)
    spans: list[tuple[Any, ...]] = field(default_factory=list)
    events: list[tuple[Any, ...]] = field(default_factory=list)
    state: State = State.SEALED
    reason: str = ""
    ended: dict[str, str] = field(default_factory=dict)  # peer -> how it ended
    statistics: dict[str, dict[str, float]] = field(default_factory=dict)
    bound_ns: int = 0
    offset_ns: int = 0  # of the clock of its only host
    phases: list[Phase] | None = None
    exceeded: ExceededLimit | None = None
    processes: int = 1  # of each role; each has one group, the last one all others

    def send(self, sender: int, seq: int, intended_ns: int, late_ns: int = 0, *, attempt: int = 1) -> None:
        self.sent.append((sender, seq, attempt, intended_ns, intended_ns + late_ns, 100))

    def deliver(
        self, receiver: int, sender: int, seq: int, intended_ns: int, received_ns: int, flags: int = 0, late_ns: int = 0
    ) -> None:
        arrival = sum(row[0] == receiver for row in self.received)
        sent_ns = intended_ns + late_ns
        self.received.append((receiver, sender, seq, intended_ns, sent_ns, received_ns, arrival, 100, flags))

    def accept(self, sender: int, first_seq: int, last_seq: int, sent_ns: int, settled_ns: int) -> None:
        self.settled.append((sender, first_seq, last_seq, sent_ns, settled_ns, int(Settlement.ACCEPTED)))

    def carry(self, messages: int, *, sender: int = 0, receiver: int = 0, latency_ns: int = MS) -> None:
        """Deliver messages without a fault, one per millisecond from the start of the measure phase."""
        for seq in range(messages):
            intended_ns = MEASURE_NS + seq * MS
            self.send(sender, seq, intended_ns)
            self.deliver(receiver, sender, seq, intended_ns, intended_ns + latency_ns)

    def write(self, run_dir: Path) -> Path:
        document: dict[str, Any] = {"name": "tiny", "workload": [self.group, *self.more_groups], **self.more_keys}
        if self.checks is not None:
            document["checks"] = self.checks
        experiment = recorded_experiment(document, "experiment")
        for peer, tables in (
            (SENDER_PEER, {SENT: self.sent, SETTLED: self.settled, OWN_DELAY: self.own_delay}),
            (
                RECEIVER_PEER,
                {RECEIVED: self.received, READ_DELAY: self.read_delay, SPANS: self.spans, EVENTS: self.events},
            ),
        ):
            recorder = Recorder(run_dir, peer)
            for table, rows in tables.items():
                if rows:
                    recorder.append(table, len(rows), *(np.array(column) for column in zip(*rows, strict=True)))
            recorder.close()
        write_manifest(
            run_dir,
            Manifest(
                run="tiny",
                tag=1,
                experiment=to_document(experiment),
                command=["test"],
                started_ns=START_NS,
                state=self.state,
                reason=self.reason,
                exceeded=self.exceeded,
                clocks=[Clock("here", 0, offset_ns=self.offset_ns, bound_ns=self.bound_ns)],
                peers=[
                    PeerRecord(
                        name,
                        role,
                        "here",
                        1,
                        self.ended.get(name, "finished"),
                        "no heartbeat" if name in self.ended else "",
                        PeerStatistics(**self.statistics.get(name, default)),
                    )
                    for role, default in (
                        ("sender", KEPT_UP),
                        ("receiver", {"busy_share": 0.1, "batch_share": 0.5}),
                    )
                    for name in (f"{role}-{number}" for number in range(self.processes))
                ],
                connections=_connections(experiment, self.processes),
                phases=[Phase("warmup", START_NS, MEASURE_NS), Phase("measure", MEASURE_NS, END_NS)]
                if self.phases is None
                else self.phases,
                files=list(journalled_parts(run_dir)),
            ),
        )
        return run_dir


def _connections(experiment: Experiment, processes: int) -> list[ConnectionRecord]:
    numbers = {"sender": count(), "receiver": count()}
    return [
        ConnectionRecord(
            next(numbers[role]),
            role,
            f"{role}-{min(position, processes - 1)}",
            group.name,
            group.address,
            group.destination,
            group.subscription_of(index) if role == "receiver" else "",
        )
        for position, group in enumerate(experiment.workload)
        for role, connections in (("sender", group.senders), ("receiver", group.receivers))
        for index in range(connections)
    ]


def silent(_: str) -> None:
    """Discard progress messages."""
