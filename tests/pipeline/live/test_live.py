"""Do live tables follow a recording that grows, count right, and say what came too late?

The recording is written part by part with the recorder that peers use; what is expected comes from NumPy, and what
Spark did from its own account of the query.
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
from crescendo.pipeline.live.snapshot import LiveTotals, Period, Snapshot
from crescendo.pipeline.live.stream import StreamSetup
from crescendo.pipeline.live.watch import LiveWatcher, watch
from crescendo.pipeline.live.watcher_process import WatcherProcess
from crescendo.record.manifest import Clock, PeerRecord, Phase, State, read_manifest, write_manifest
from crescendo.record.observed import NOTE, OBSERVED, move_note_to_manifest
from crescendo.record.schema import RECEIVED, SENT, SETTLED, Settlement
from crescendo.record.writer import Recorder
from tiny_recordings import MS, RECEIVER_PEER, SENDER_PEER, Tiny

SECOND_NS = 10**9
OFFSET_NS = 1_700_000_000 * SECOND_NS  # from the recording's clock to the wall clock
PATIENCE_S = 100


@dataclass
class Growing:
    """A recording to which a test adds seconds of traffic, a part for each table and call."""

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
        """One part, renamed into place whole; returns its name."""
        name = f"{peer}{self.numbers.setdefault(peer, 0)}"
        self.numbers[peer] += 1
        recorder = Recorder(self.path, name)
        recorder.append(table, len(columns[0]), *columns)
        recorder.close()
        return f"{table}/{name}-00000.parquet"

    def carry(self, first_s: int, seconds: int, response_ms: float = 5.0) -> list[str]:
        """Seconds of traffic, sent late by half a millisecond, as three parts."""
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
    terms = StreamSetup(SECOND_NS, 4 * SECOND_NS, OFFSET_NS)
    watcher = LiveWatcher(tmp_path / "private", growing.path, spark, terms, read_manifest(growing.path), 0.1)
    yield watcher
    watcher.stop()


def newest(glances: list[Snapshot]) -> dict[int, Period]:
    """The last word on every period, by its second on the recording's clock."""
    return {(period.start_ns - OFFSET_NS) // SECOND_NS: period for glance in glances for period in glance.periods}


def test_the_stream_follows_parts_as_they_come_and_counts_the_late_ones(
    growing: Growing, watching: LiveWatcher
) -> None:
    glances: list[Snapshot] = []

    def read(*first_seconds: int) -> None:
        for first_s in first_seconds:
            growing.carry(first_s, 2)
        watching.catch_up()
        glances.extend(watching.glances())

    def dropped() -> int:
        return sum(
            state.numRowsDroppedByWatermark for entry in watching.query.recentProgress for state in entry.stateOperators
        )

    assert watching.glances() == []  # nothing is there yet, not even the directories
    held_back = Growing(growing.path.parent / "elsewhere").begin()
    for number, first_s in enumerate((10, 12, 14, 30), start=1):
        read(first_s)
        rows_read = sum(entry.numInputRows for entry in watching.query.recentProgress)
        assert rows_read == number * 2 * (2 * growing.rate + growing.rate // 10), "parts are read when they have come"
    assert dropped() == 0
    on_time = (len(growing.sent), len(growing.received))
    late = held_back.carry(16, 2)  # as if its peer had been slow to close it
    for part in late:
        (held_back.path / part).rename(growing.path / part.replace("-0", "-late-0", 1))
    (growing.path / SENT / "unfinished.tmp").write_bytes(b"PAR1 and then nothing")
    read(32)
    assert dropped() > 0, "Spark has left out what was late"
    progress = watching.query.recentProgress
    assert len([entry for entry in progress if entry.numInputRows]) >= 5
    marks = [entry.eventTime["watermark"] for entry in progress if entry.eventTime]
    assert marks == sorted(marks)
    assert len(set(marks)) >= 4
    account = glances[-1].account
    per_carry = 2 * growing.rate
    assert (account.sent, account.received) == (on_time[0] + per_carry, on_time[1] + per_carry)
    assert account.settled == account.sent
    assert (account.parts, account.late_parts, account.late_messages) == (18, 3, 3 * per_carry)
    assert all(glance.account.late_parts == 0 for glance in glances if glance.account.parts < 16)


def test_counts_rates_and_percentiles_of_a_period_are_those_of_its_messages(
    growing: Growing, watching: LiveWatcher
) -> None:
    for first_s in (100, 103):
        growing.carry(first_s, 3, response_ms=400.0)  # many arrive in a later second than they were sent in
        watching.catch_up()
    glances = watching.glances(ended=True)
    found = newest(glances)
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
            assert spread.percentiles_ns["p99.9"] is None, "a thousand samples would be too few, and there are fewer"
    assert sum(period.received for period in found.values()) == received.size
    assert glances[-1].ended
    assert glances[-1].account == LiveTotals(glances[-1].account.batch, sent.size, received.size, sent.size, 6, 0, 0)


def test_a_watch_ends_with_the_run_and_leaves_a_mark_but_no_files(
    spark: SparkSession, growing: Growing, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    private = tmp_path / "tmp"
    private.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(private))
    growing.describe(clocks=[Clock("here", time.time_ns() - 200 * SECOND_NS)])
    told: list[Snapshot] = []
    ended = _in_background(lambda: watch(growing.path, spark, told.append, trigger_s=0.1))
    growing.carry(190, 3)
    _wait_until(lambda: bool(told))
    assert not any(glance.ended for glance in told)
    assert (growing.path / NOTE).is_file()
    growing.carry(193, 2)
    growing.seal()
    account = ended()
    assert (account.sent, account.received) == (5 * growing.rate, 5 * growing.rate)
    assert [glance.ended for glance in told] == [False] * (len(told) - 1) + [True]
    assert json.dumps([glance.account.sent for glance in told]) == json.dumps(
        sorted(glance.account.sent for glance in told)
    )
    assert list(private.iterdir()) == []
    assert not spark.streams.active
    move_note_to_manifest(growing.path)
    assert "live tables" in read_manifest(growing.path).host[OBSERVED]
    assert not (growing.path / NOTE).exists()


def test_who_watches_from_elsewhere_or_too_late_leaves_no_mark(spark: SparkSession, growing: Growing) -> None:
    growing.describe(host={"name": "another-machine"}, clocks=[Clock("here", time.time_ns())])
    growing.carry(0, 1)
    asked = iter([False, True])
    watch(growing.path, spark, lambda _: None, trigger_s=0.1, asked_to_end=lambda: next(asked))
    assert not (growing.path / NOTE).exists()
    growing.describe(host={"name": socket.gethostname()})
    growing.seal(State.INTERRUPTED)
    growing.describe(phases=[Phase("measure", 0, SECOND_NS)])
    told: list[Snapshot] = []
    account = watch(growing.path, spark, told.append, trigger_s=0.1)
    assert account.received == growing.rate
    assert told[-1].ended
    assert not (growing.path / NOTE).exists()
    move_note_to_manifest(growing.path)
    assert OBSERVED not in read_manifest(growing.path).host


def test_a_companion_that_fails_says_why_and_holds_nobody_up(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with WatcherProcess() as companion:
        companion.start()
        companion.wait_until_ready(lambda: False)
        companion.look_at(tmp_path)
        _wait_until(lambda: companion.lines(0.1) is None)
        assert companion.lines() is None
        assert "JAVA_HOME" in companion.complaint()


def _in_background(work: Callable[[], LiveTotals]) -> Callable[[], LiveTotals]:
    """Start it; calling the result waits for its answer, or raises what it raised."""
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
        thread.join(PATIENCE_S)
        if failures:
            raise failures[0]
        return answers[0]

    return wait


def _wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.05)
