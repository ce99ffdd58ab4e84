"""Do live tables follow a growing recording, count correctly, and report late messages?

The recording is written part by part with the recorder that peers use. Expected values come from NumPy, and facts about
Spark from the progress of its query.
"""

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace
from pyspark.sql import SparkSession

from crescendo.model.histogram import bucket_of
from crescendo.pipeline.live.growing_counts import StreamSetup
from crescendo.pipeline.live.snapshot import LiveTotals, Period, Snapshot
from crescendo.pipeline.live.watch import LiveWatcher, watch
from crescendo.pipeline.live.watcher_process import WatcherProcess
from crescendo.record.manifest import MANIFEST, Clock, PeerRecord, Phase, State, read_manifest, write_manifest
from crescendo.record.observed import OBSERVED, OBSERVED_FILE, host_facts_of
from crescendo.record.schema import RECEIVED, SENT, SETTLED, Settlement
from crescendo.record.writer import Recorder
from tiny_recordings import MS, RECEIVER_PEER, SENDER_PEER, Tiny

SECOND_NS = 10**9
OFFSET_NS = 1_700_000_000 * SECOND_NS  # from the recording's clock to the wall clock
TIMEOUT_S = 100


@dataclass
class Growing:
    """A recording to which a test adds seconds of traffic, one part per table and call."""

    path: Path
    rate: int = 200
    numbers: dict[str, int] = field(default_factory=dict)
    sent: list[int] = field(default_factory=list)
    received: list[tuple[int, int]] = field(default_factory=list)  # received_ns, response_ns

    def begin(self, **changes: Any) -> "Growing":
        Tiny(state=State.INCOMPLETE, phases=[]).write(self.path)
        self.describe(host={"name": socket.gethostname()}, clocks=[Clock("here", OFFSET_NS)], peers=[], **changes)
        return self

    def describe(self, **changes: Any) -> None:
        write_manifest(self.path, replace(read_manifest(self.path), **changes))

    def add(self, table: str, peer: str, columns: list[np.ndarray]) -> str:
        """Add one complete part; returns its name."""
        name = f"{peer}{self.numbers.setdefault(peer, 0)}"
        self.numbers[peer] += 1
        recorder = Recorder(self.path, name)
        recorder.append(table, len(columns[0]), *columns)
        recorder.close()
        return f"{table}/{name}-00000.parquet"

    def add_traffic(self, first_s: int, seconds: int, response_ms: float = 5.0) -> list[str]:
        """Add seconds of traffic, sent half a millisecond late, as three parts."""
        count = seconds * self.rate
        seq = np.arange(count) + first_s * self.rate
        intended = first_s * SECOND_NS + np.arange(count) * (SECOND_NS // self.rate)
        response = np.round(np.random.default_rng(first_s).gamma(3, response_ms / 3, count) * MS).astype(np.int64)
        sent, received = intended + MS // 2, intended + MS // 2 + response
        self.sent += sent.tolist()
        self.received += list(zip(received.tolist(), (received - intended).tolist(), strict=True))
        one, zero = np.ones(count, np.int64), np.zeros(count, np.int64)
        ranges = np.arange(0, count, 10)
        return [
            self.add(SENT, SENDER_PEER, [zero, seq, one, intended, sent, one * 100]),
            self.add(
                RECEIVED, RECEIVER_PEER, [zero, zero, seq, intended, sent, received, np.arange(count), one, zero]
            ),
            self.add(
                SETTLED,
                SENDER_PEER,
                [zero[ranges], seq[ranges], seq[ranges] + 9, sent[ranges], sent[ranges] + MS,
                 one[ranges] * int(Settlement.ACCEPTED)],
            ),
        ]  # fmt: skip

    def seal(self, state: State = State.SEALED) -> None:
        peers = [PeerRecord(SENDER_PEER, "sender", "here", 1, "finished")]
        self.describe(state=state, peers=peers, phases=[Phase("measure", 0, 10**12)])


@pytest.fixture
def growing(tmp_path: Path) -> Growing:
    return Growing(tmp_path / "a [run] *").begin()


@pytest.fixture
def watching(spark: SparkSession, growing: Growing, tmp_path: Path) -> Iterator[LiveWatcher]:
    (tmp_path / "private").mkdir()
    setup = StreamSetup(SECOND_NS, 4 * SECOND_NS, OFFSET_NS)
    watcher = LiveWatcher(tmp_path / "private", growing.path, spark, setup, read_manifest(growing.path), 0.1)
    yield watcher
    watcher.stop()


def newest(snapshots: list[Snapshot]) -> dict[int, Period]:
    """The latest state of every period, by its second on the recording's clock."""
    return {(period.start_ns - OFFSET_NS) // SECOND_NS: period for snapshot in snapshots for period in snapshot.periods}


def test_the_stream_follows_new_parts_and_counts_late_ones(growing: Growing, watching: LiveWatcher) -> None:
    snapshots: list[Snapshot] = []

    def read(*first_seconds: int) -> None:
        for first_s in first_seconds:
            growing.add_traffic(first_s, 2)
        watching.catch_up()
        snapshots.extend(watching.snapshots())

    def dropped() -> int:
        return sum(
            state.numRowsDroppedByWatermark for entry in watching.query.recentProgress for state in entry.stateOperators
        )

    assert watching.snapshots() == []  # nothing exists yet, not even the directories
    held_back = Growing(growing.path.parent / "elsewhere").begin()
    for number, first_s in enumerate((10, 12, 14, 30), start=1):
        read(first_s)
        rows_read = sum(entry.numInputRows for entry in watching.query.recentProgress)
        assert rows_read == number * 2 * (2 * growing.rate + growing.rate // 10), (
            "each part is read as soon as it appears"
        )
    assert dropped() == 0
    on_time = (len(growing.sent), len(growing.received))
    late = held_back.add_traffic(16, 2)  # as if its peer had been slow to close them
    for part in late:
        (held_back.path / part).rename(growing.path / part.replace("-0", "-late-0", 1))
    (growing.path / SENT / "unfinished.tmp").write_bytes(b"PAR1 and then nothing")
    read(32)
    assert dropped() > 0, "Spark has dropped the late messages"
    progress = watching.query.recentProgress
    assert len([entry for entry in progress if entry.numInputRows]) >= 5
    marks = [entry.eventTime["watermark"] for entry in progress if entry.eventTime]
    assert marks == sorted(marks)
    assert len(set(marks)) >= 4
    account = snapshots[-1].account
    per_call = 2 * growing.rate
    assert (account.sent, account.received) == (on_time[0] + per_call, on_time[1] + per_call)
    assert account.settled == account.sent
    assert (account.parts, account.late_parts, account.late_messages) == (18, 3, 3 * per_call)
    # A batch may pick up the late parts before those of the last call, but never before the first twelve.
    assert all(snapshot.account.late_parts == 0 for snapshot in snapshots if snapshot.account.parts <= 12)


def test_counts_rates_and_percentiles_of_a_period_match_its_messages(growing: Growing, watching: LiveWatcher) -> None:
    for first_s in (100, 103):
        growing.add_traffic(first_s, 3, response_ms=400.0)  # many arrive in a later second than they were sent in
        watching.catch_up()
    snapshots = watching.snapshots(ended=True)
    found = newest(snapshots)
    sent = np.array(growing.sent) // SECOND_NS
    received, response = np.array(growing.received).T
    for second, period in found.items():
        here = response[received // SECOND_NS == second]
        assert (period.sent, period.received) == ((sent == second).sum(), here.size)
        assert period.rate(period.sent) == period.sent
        assert period.closed
        if here.size:
            spread = period.latency["response"]
            assert (spread.count, spread.max_ns) == (here.size, here.max())
            assert spread.mean_ns == pytest.approx(here.mean())
            exact = np.sort(here)[int(np.ceil(here.size * 0.5)) - 1]
            assert here.size < 20 or bucket_of(np.array([spread.percentiles_ns["p50"]]))[0] == bucket_of(exact[None])[0]
            assert spread.percentiles_ns["p99.9"] is None, (
                "a thousand samples would be too few, and there are even fewer"
            )
    assert sum(period.received for period in found.values()) == received.size
    assert snapshots[-1].ended
    assert snapshots[-1].account == LiveTotals(
        snapshots[-1].account.batch, sent.size, received.size, sent.size, 6, 0, 0
    )


def test_a_watch_ends_with_the_run_and_leaves_a_note_but_no_temporary_files(
    spark: SparkSession, growing: Growing, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    private = tmp_path / "tmp"
    private.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(private))
    growing.describe(clocks=[Clock("here", time.time_ns() - 200 * SECOND_NS)])
    snapshots: list[Snapshot] = []
    ended = _in_background(lambda: watch(growing.path, spark, snapshots.append, trigger_s=0.1))
    growing.add_traffic(190, 3)
    _wait_until(lambda: bool(snapshots))
    assert not any(snapshot.ended for snapshot in snapshots)
    assert (growing.path / OBSERVED_FILE).is_file()
    growing.add_traffic(193, 2)
    growing.seal()
    sealed = (growing.path / MANIFEST).read_bytes()
    account = ended()
    assert (account.sent, account.received) == (5 * growing.rate, 5 * growing.rate)
    assert [snapshot.ended for snapshot in snapshots] == [False] * (len(snapshots) - 1) + [True]
    assert json.dumps([snapshot.account.sent for snapshot in snapshots]) == json.dumps(
        sorted(snapshot.account.sent for snapshot in snapshots)
    )
    assert list(private.iterdir()) == []
    assert not spark.streams.active
    assert (growing.path / MANIFEST).read_bytes() == sealed
    assert "live tables" in host_facts_of(growing.path, read_manifest(growing.path))[OBSERVED]


def test_a_watcher_on_another_host_or_after_the_run_leaves_no_note(spark: SparkSession, growing: Growing) -> None:
    growing.describe(host={"name": "another-machine"}, clocks=[Clock("here", time.time_ns())])
    growing.add_traffic(0, 1)
    asked = iter([False, True])
    watch(growing.path, spark, lambda _: None, trigger_s=0.1, stop_requested=lambda: next(asked))
    assert not (growing.path / OBSERVED_FILE).exists()
    growing.describe(host={"name": socket.gethostname()})
    growing.seal(State.INTERRUPTED)
    growing.describe(phases=[Phase("measure", 0, SECOND_NS)])
    snapshots: list[Snapshot] = []
    account = watch(growing.path, spark, snapshots.append, trigger_s=0.1)
    assert account.received == growing.rate
    assert snapshots[-1].ended
    assert not (growing.path / OBSERVED_FILE).exists()
    assert OBSERVED not in host_facts_of(growing.path, read_manifest(growing.path))


def test_a_failed_watcher_process_reports_why_and_does_not_block(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with WatcherProcess() as watcher:
        watcher.start()
        watcher.wait_until_ready(lambda: False)
        watcher.send_run_dir(tmp_path)
        _wait_until(lambda: watcher.lines(0.1) is None)
        assert watcher.lines() is None
        assert "JAVA_HOME" in watcher.failure()


def _in_background(work: Callable[[], LiveTotals]) -> Callable[[], LiveTotals]:
    """Start it in a thread; calling the result waits for its return value, or raises its exception."""
    answers: list[LiveTotals] = []
    failures: list[BaseException] = []

    def run() -> None:
        try:
            answers.append(work())
        except BaseException as err:  # raised again below
            failures.append(err)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()

    def wait() -> LiveTotals:
        thread.join(TIMEOUT_S)
        if failures:
            raise failures[0]
        return answers[0]

    return wait


def _wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.05)
