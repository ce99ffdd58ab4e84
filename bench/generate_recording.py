"""Generates a recording like that of a large run.

Writes a valid, sealed recording of any number of messages with the same writer that peers use: five senders, one
queue, five receivers, log-normal latencies, settlements in ranges, and as much loss and duplication as requested.
Sends nothing; the same arguments and seed give the same rows.
"""

import argparse
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from crescendo.model.experiment import Experiment
from crescendo.model.experiment_file import to_document
from crescendo.model.experiment_parts import Phases
from crescendo.model.pacer import pacer_for
from crescendo.model.peer_statistics import PeerStatistics
from crescendo.model.units import Duration, Extent
from crescendo.model.workload import Group
from crescendo.record.manifest import Clock, ConnectionRecord, Manifest, PeerRecord, Phase, State, write_manifest
from crescendo.record.reader import journalled_parts
from crescendo.record.schema import RECEIVED, SENT, SETTLED, Flag, Settlement
from crescendo.record.writer import Recorder

Int64s = npt.NDArray[np.int64]

SENDERS = RECEIVERS = 5
SIZE = 256
START_NS = 1_000_000_000_000
BATCH = 64  # messages that share one send, and therefore one sent_ns
READ_NS = 50_000  # receivers wake about this often; a batch shares one received_ns
CHUNK = 250_000  # messages per sender in memory at a time
SETTLE_NS = 200_000


@dataclass(frozen=True)
class Plan:
    """What to generate. The rate is per connection, as everywhere."""

    messages: int
    rate: float = 100_000.0
    seed: int = 1
    lost: int = 0
    duplicated: int = 0


def generate(out: Path, plan: Plan) -> Manifest:
    """Write the recording; returns its manifest."""
    random = np.random.default_rng(plan.seed)
    per_sender = plan.messages // SENDERS
    victims = random.choice(per_sender * SENDERS, plan.lost + plan.duplicated, replace=False)
    lost, repeated = victims[: plan.lost], victims[plan.lost :]
    writers = Recorder(out, "sender-0"), Recorder(out, "receiver-0")
    arrivals = np.zeros(RECEIVERS, np.int64)
    clocks = np.zeros(SENDERS, np.int64)
    for first in range(0, per_sender, CHUNK):
        seq = np.arange(first, min(first + CHUNK, per_sender), dtype=np.int64)
        deliveries = []
        for sender in range(SENDERS):
            sent_ns = _send(writers[0], sender, seq, plan.rate, random)
            received_ns = sent_ns[1] + random.lognormal(np.log(300_000), 0.5, seq.size).astype(np.int64)
            # A queue keeps the order of a sender's messages; receivers wake in steps.
            received_ns = np.maximum.accumulate(np.maximum(received_ns, clocks[sender]))
            clocks[sender] = received_ns[-1]
            received_ns = -(-received_ns // READ_NS) * READ_NS
            kept = ~np.isin(seq, lost[lost % SENDERS == sender] // SENDERS)
            again = np.isin(seq, repeated[repeated % SENDERS == sender] // SENDERS)
            rows = np.stack([np.full(seq.size, sender), seq, sent_ns[0], sent_ns[1], received_ns, np.zeros(seq.size)])
            copies = rows[:, again]
            copies[5] = int(Flag.REDELIVERED | Flag.OUT_OF_ORDER)
            copies[4] += READ_NS * 10
            deliveries += [rows[:, kept], copies]
        _receive(writers[1], np.concatenate(deliveries, axis=1).astype(np.int64), arrivals)
    for writer in writers:
        writer.close()
    manifest = _manifest(out, plan, per_sender)
    write_manifest(out, manifest)
    return manifest


def _send(
    recorder: Recorder, sender: int, seq: Int64s, rate: float, random: np.random.Generator
) -> tuple[Int64s, Int64s]:
    """Record the sends of one sender and their settlement; returns intended and sent times."""
    intended_ns = START_NS + pacer_for(rate).due_ns(seq)
    late_ns = random.integers(20_000, 200_000, seq.size // BATCH + 2).repeat(BATCH)[: seq.size]
    last = np.minimum((np.arange(seq.size) // BATCH + 1) * BATCH, seq.size) - 1
    sent_ns = intended_ns[last] + late_ns
    recorder.append(SENT, seq.size, sender, seq, 1, intended_ns, sent_ns, SIZE)
    heads = np.arange(0, seq.size, BATCH)
    tails = np.minimum(heads + BATCH, seq.size) - 1
    settled_ns = sent_ns[heads] + random.lognormal(np.log(SETTLE_NS), 0.4, heads.size).astype(np.int64)
    recorder.append(
        SETTLED, heads.size, sender, seq[heads], seq[tails], sent_ns[heads], settled_ns, int(Settlement.ACCEPTED)
    )
    return intended_ns, sent_ns


def _receive(recorder: Recorder, rows: Int64s, arrivals: Int64s) -> None:
    """Distribute the deliveries over the receivers, in order of arrival."""
    order = np.argsort(rows[4], kind="stable")
    rows = rows[:, order]
    reader = (rows[1] // BATCH) % RECEIVERS
    for receiver in range(RECEIVERS):
        sender, seq, intended_ns, sent_ns, received_ns, flags = rows[:, reader == receiver]
        arrival = arrivals[receiver] + np.arange(seq.size)
        arrivals[receiver] += seq.size
        recorder.append(
            RECEIVED, seq.size, receiver, sender, seq, intended_ns, sent_ns, received_ns, arrival, SIZE, flags
        )


def _manifest(out: Path, plan: Plan, per_sender: int) -> Manifest:
    end_ns = START_NS + int(pacer_for(plan.rate).due_ns(np.array([per_sender]))[0])
    group = Group(senders=SENDERS, receivers=RECEIVERS, rate=plan.rate)
    experiment = Experiment(
        name="generated",
        workload=[group],
        phases=Phases(warmup=Duration(0), measure=Extent(str(Duration(end_ns - START_NS)))),
    )
    connections = [
        ConnectionRecord(
            index, role, f"{role}-0", group.name, group.address, group.destination, group.address * (role == "receiver")
        )
        for role, count in (("sender", SENDERS), ("receiver", RECEIVERS))
        for index in range(count)
    ]
    kept_up = {"lateness_p50_ns": 10_000.0, "lateness_p99_ns": 20_000.0, "blocked_share": 0.0, "batch_share": 1.0}
    return Manifest(
        run="generated",
        tag=plan.seed,
        experiment=to_document(experiment),
        command=["generate_recording.py"],
        started_ns=START_NS,
        state=State.SEALED,
        clocks=[Clock("generated", 0)],
        peers=[
            PeerRecord("sender-0", "sender", "generated", 1, "finished", statistics=PeerStatistics(**kept_up)),
            PeerRecord("receiver-0", "receiver", "generated", 2, "finished", statistics=PeerStatistics(busy_share=0.3)),
        ],
        connections=connections,
        phases=[Phase("measure", START_NS, end_ns), Phase("drain", end_ns, end_ns + 10**10)],
        files=list(journalled_parts(out)),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("out", type=Path, help="the recording to write; must not exist yet")
    parser.add_argument("--messages", type=int, default=10_000_000)
    parser.add_argument("--rate", type=float, default=Plan.rate, help="messages per second and connection")
    parser.add_argument("--lost", type=int, default=0)
    parser.add_argument("--duplicated", type=int, default=0)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    given.out.mkdir(parents=True)
    plan = Plan(given.messages, given.rate, given.seed, given.lost, given.duplicated)
    manifest = generate(given.out, plan)
    octets = sum(part.octets for part in manifest.files)
    print(
        f"{given.out}: {plan.messages:,} messages in {len(manifest.files)} parts, {octets / plan.messages:.1f} B each"
    )


if __name__ == "__main__":
    main()
