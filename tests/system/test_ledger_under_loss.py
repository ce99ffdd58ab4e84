"""Does the ledger name exactly the messages that a faulty network dropped or repeated, and no others?"""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from byte_proxy import ByteProxy, Key, seeded_copies
from crescendo.control.notes import Statistics
from crescendo.load.assignment import Quota
from crescendo.load.engine.receiver_engine import Receiver, ReceiverEngine
from crescendo.load.engine.sender import Sender
from crescendo.load.engine.sender_engine import SenderEngine
from crescendo.load.engine.stalls import STALL
from crescendo.load.protocols.amqp10 import Amqp10Receiver, Amqp10Sender
from crescendo.model.experiment_file import experiment_from, to_document
from crescendo.model.pacer import pacer_for
from crescendo.pipeline.job import analyze
from crescendo.processes.die_with_parent import die_with_parent
from crescendo.record.manifest import ConnectionRecord, Manifest, Phase, State, write_manifest
from crescendo.record.reader import journalled_parts
from crescendo.record.summary import Summary
from crescendo.record.writer import Recorder
from crescendo.systems.instance import RunningInstance, start
from crescendo.systems.kinds.loopback import LOOPBACK

TAG = 77
MESSAGES = 1500
SEEDS = 50
CANCELLING = SEEDS
"""The queue after those of the seeds: its losses and repeats cancel in count, sum and xor."""

COPIES: list[Callable[[int], int]] = [
    *(seeded_copies(seed) for seed in range(SEEDS)),
    lambda number: {0: 2, 1: 0, 4: 0, 5: 2}.get(number, 1),
]
"""One function per queue, which has a sender, a receiver, and a proxy between the relay and the receiver."""

EXPERIMENT = experiment_from(
    {
        "name": "tampered",
        "workload": [
            {"name": f"g{number}", "address": f"queue://q{number}", "rate": 0, "size": 64}
            for number, _ in enumerate(COPIES)
        ],
        "checks": {"lost": 0},
    }
)


class Guard:
    """Stops an engine on request; ignores its reports."""

    def __init__(self) -> None:
        self.stop = threading.Event()

    def should_stop(self) -> bool:
        return self.stop.is_set()

    def report(self, statistics: Statistics) -> None:
        pass

    def event(self, kind: str, detail: dict[str, object]) -> None:
        assert kind == STALL, f"{kind}: {detail}"


def _ready(channels: list[Amqp10Sender] | list[Amqp10Receiver]) -> None:
    deadline = time.monotonic() + 60
    while not all(channel.ready for channel in channels):
        for channel in channels:
            channel.flush()
            list(channel.pump())
            assert channel.closed is None, channel.closed
        assert time.monotonic() < deadline
        time.sleep(0.001)


def _record(run_dir: Path, relay: RunningInstance) -> list[ByteProxy]:
    """Senders connect directly to the relay, receivers through proxies; returns a sealed recording."""
    groups = EXPERIMENT.workload
    proxies = [ByteProxy(relay.facts["ports"]["amqp"], copies) for copies in COPIES]
    receiving, sending = Guard(), Guard()
    incoming = [Amqp10Receiver(f"amqp://127.0.0.1:{p.port}", g) for p, g in zip(proxies, groups, strict=True)]
    _ready(incoming)
    received_log = Recorder(run_dir, "receiver-0")
    receivers = [Receiver(i, groups[i], channel) for i, channel in enumerate(incoming)]
    engine = ReceiverEngine(receivers, received_log, receiving, tag=TAG)
    thread = threading.Thread(target=engine.run)
    thread.start()
    outgoing = [Amqp10Sender(relay.url, group) for group in groups]
    _ready(outgoing)
    sent_log = Recorder(run_dir, "sender-0")
    senders = [
        Sender(i, groups[i], pacer_for(groups[i].rate), Quota(MESSAGES, 2**62), channel, TAG)
        for i, channel in enumerate(outgoing)
    ]
    sender_engine = SenderEngine(senders, sent_log, sending, drain_ns=60 * 10**9)
    t0_ns = time.monotonic_ns()
    sender_engine.run(t0_ns)
    deadline = time.monotonic() + 60
    while any(
        r.counts.arrivals < MESSAGES - len(p.dropped) + len(p.repeated) for r, p in zip(receivers, proxies, strict=True)
    ):
        assert time.monotonic() < deadline, "the messages that were passed on did not all arrive"
        time.sleep(0.01)
    time.sleep(0.1)
    receiving.stop.set()
    thread.join(10)
    for engine_or_proxy in (sender_engine, engine, *proxies):
        engine_or_proxy.close()
    for log in (received_log, sent_log):
        log.close()
    _seal(run_dir, t0_ns)
    return proxies


def _seal(run_dir: Path, t0_ns: int) -> None:
    connections = [
        ConnectionRecord(
            number, role, f"{role}-0", g.name, g.address, g.destination, g.address if role == "receiver" else ""
        )
        for role in ("sender", "receiver")
        for number, g in enumerate(EXPERIMENT.workload)
    ]
    manifest = Manifest(
        run=run_dir.name,
        tag=TAG,
        experiment=to_document(EXPERIMENT),
        command=[],
        started_ns=0,
        state=State.SEALED,
        connections=connections,
        phases=[Phase("measure", t0_ns, time.monotonic_ns())],
        files=list(journalled_parts(run_dir)),
    )
    write_manifest(run_dir, manifest)


def _named(run_dir: Path, kind: str) -> list[Key]:
    """The messages that the ledger names, from its table of ranges."""
    keys: list[Key] = []
    for row in pq.read_table(run_dir / "tables" / "ledger_ranges").to_pylist():
        if row["kind"] == kind:
            keys += [(row["sender"], seq) for seq in range(row["first_seq"], row["last_seq"] + 1)]
    return sorted(keys)


@dataclass(frozen=True)
class TamperedRun:
    """What the proxies did, and what the ledger reports."""

    proxies: list[ByteProxy]
    run_dir: Path
    summary: Summary


@pytest.fixture(scope="module")
def tampered(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> TamperedRun:
    directory = tmp_path_factory.mktemp("tampered")
    relay = start(LOOPBACK, {}, directory=directory / "relay", on_fork=die_with_parent())
    try:
        proxies = _record(directory / "run", relay)
    finally:
        relay.stop()
    return TamperedRun(proxies, directory / "run", analyze(directory / "run", spark, lambda _: None))


def test_the_ledger_names_exactly_the_dropped_and_repeated_messages(tampered: TamperedRun) -> None:
    assert sum(bool(proxy.dropped) for proxy in tampered.proxies) > SEEDS // 2
    assert sum(bool(proxy.repeated) for proxy in tampered.proxies) > SEEDS // 2
    dropped = sorted(key for proxy in tampered.proxies for key in proxy.dropped)
    repeated = sorted(key for proxy in tampered.proxies for key in proxy.repeated)
    assert _named(tampered.run_dir, "lost") == dropped
    assert _named(tampered.run_dir, "duplicated") == repeated
    total = tampered.summary.total
    assert total.sent == MESSAGES * len(tampered.proxies)
    # The relay had accepted them, so each of them is an acknowledged loss.
    assert (total.lost_acknowledged, total.lost_unacknowledged) == (len(dropped), 0)
    assert (total.duplicated, total.delivered) == (len(repeated), total.sent - len(dropped))
    assert (total.reordered, total.corrupt, total.stray, total.unrecorded) == (0, 0, 0, 0)


def test_the_ledger_of_each_sender_is_its_own(tampered: TamperedRun) -> None:
    rows = {row.sender: row for row in tampered.summary.ledger if row.scope == "sender"}
    for sender, proxy in enumerate(tampered.proxies):
        row = rows[sender]
        assert (row.sent, row.lost_acknowledged, row.duplicated) == (MESSAGES, len(proxy.dropped), len(proxy.repeated))
        assert (row.lost_unacknowledged, row.reordered, row.unrecorded) == (0, 0, 0)


def test_losses_and_repeats_that_cancel_in_count_sum_and_xor_are_detected(tampered: TamperedRun) -> None:
    proxy = tampered.proxies[CANCELLING]
    assert proxy.dropped == [(CANCELLING, 1), (CANCELLING, 4)]
    assert proxy.repeated == [(CANCELLING, 0), (CANCELLING, 5)]
    lost, duplicated = _named(tampered.run_dir, "lost"), _named(tampered.run_dir, "duplicated")
    assert [key for key in lost if key[0] == CANCELLING] == proxy.dropped
    assert [key for key in duplicated if key[0] == CANCELLING] == proxy.repeated
