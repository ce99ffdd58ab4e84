"""Is every message that arrives recorded once, with the right flags?"""

import struct
import threading
import time
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crescendo.load.assignment import SliceMembers
from crescendo.load.engine.received_rows import ReceivedRows, ReceiverCounts, order_flags
from crescendo.load.engine.receiver_engine import Receiver, ReceiverEngine
from crescendo.load.engine.sliced_rows import SlicedRows
from crescendo.load.engine.statistics import Distribution
from crescendo.load.protocols.interfaces import ReceivedMessages
from crescendo.model.units import Duration
from crescendo.model.workload import Group
from crescendo.record.schema import RECEIVED
from load_fakes import FakeControl, FakeLog, FakeReceiveChannel

TAG = 77
REDELIVERED, CORRUPT, STRAY, OUT_OF_ORDER = 1, 2, 4, 8  # section 5 of the design, in the order of its flags


class CountingLog(FakeLog):
    appends = 0

    def append(self, table: str, rows: int, *columns: object) -> None:
        self.appends += 1
        super().append(table, rows, *columns)


def payload(sender: int, seq: int, *, magic: int = 0xC501, tag: int = TAG, size: int = 40) -> bytes:
    return (struct.pack(">HHIQqq", magic, sender, tag, seq, 1000 + seq, 2000 + seq) + b"x" * size)[:size]


def batch(payloads: list[bytes], *, redelivered: bool = False, batched: bool = True) -> ReceivedMessages:
    rows = np.frombuffer(b"".join(payloads), np.uint8).reshape(len(payloads), -1)
    return ReceivedMessages(rows, redelivered, batched)


def receive(*batches: ReceivedMessages, number: int = 5) -> tuple[list[tuple[int, ...]], ReceiverEngine]:
    """Run an engine over these batches; check the receive times and return the rows."""
    channel = FakeReceiveChannel(list(batches))
    log = FakeLog()
    engine = ReceiverEngine([Receiver(number, Group(), channel)], log, FakeControl(stop=lambda: True), tag=TAG)
    try:
        before_ns = time.monotonic_ns()
        engine.run()
        after_ns = time.monotonic_ns()
    finally:
        engine.close()
    rows = log.rows.get(RECEIVED, [])
    assert len({row[5] for row in rows}) <= 1  # one read, one receive time
    assert all(before_ns <= row[5] <= after_ns for row in rows)
    return rows, engine


class TricklingChannel(FakeReceiveChannel):
    """One message per read, and always another one to read."""

    def __init__(self, *, drained: bool) -> None:
        super().__init__([])
        self._leaves_nothing, self.reads = drained, 0

    def pump(self) -> Iterator[ReceivedMessages]:
        self.read_pending()
        self.notify()
        self.drained = self._leaves_nothing
        self.reads += 1
        yield batch([payload(3, self.reads)])


@pytest.mark.parametrize("drained", [True, False])
def test_at_full_speed_reading_pauses_only_when_the_socket_is_empty(
    drained: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a receiver that reads in pieces after a stall would sleep between them, with megabytes waiting."""
    pauses: list[float] = []
    thread, sleep = threading.current_thread(), time.sleep

    def record(pause_s: float) -> None:  # threads of other fixtures sleep too
        pauses.append(pause_s) if threading.current_thread() is thread else sleep(pause_s)

    monkeypatch.setattr(time, "sleep", record)
    channel = TricklingChannel(drained=drained)
    control = FakeControl(stop=lambda: channel.reads > 1500 and (bool(pauses) or not drained))
    engine = ReceiverEngine([Receiver(5, Group(rate=0), channel)], FakeLog(), control, tag=TAG)
    try:
        engine.run()
    finally:
        engine.close()
    assert bool(pauses) is drained


def test_a_message_of_ours_becomes_its_row() -> None:
    rows, _ = receive(batch([payload(3, 8), payload(3, 9)]))
    now_ns = rows[0][5]
    assert rows == [(5, 3, 8, 1008, 2008, now_ns, 0, 40, 0), (5, 3, 9, 1009, 2009, now_ns, 1, 40, 0)]


kinds = st.sampled_from(["ours", "ours", "ours", "stray", "corrupt", "sender"])
messages = st.lists(st.tuples(kinds, st.integers(0, 2), st.integers(0, 12)), min_size=1, max_size=8)


@given(st.lists(st.tuples(messages, st.booleans()), min_size=1, max_size=4), st.booleans())
def test_mixed_batches_are_recorded_message_by_message(
    batches: list[tuple[list[tuple[str, int, int]], bool]], single: bool
) -> None:
    arrived = []
    expected = []
    highest: dict[int, int] = {}
    for content, redelivered in batches:
        payloads = []
        for kind, sender, seq in content:
            flags = REDELIVERED if redelivered else 0
            if kind == "ours":
                payloads.append(payload(sender, seq))
                flags |= OUT_OF_ORDER if seq < highest.get(sender, -1) else 0
                highest[sender] = max(seq, highest.get(sender, -1))
                expected.append((sender, seq, flags))
            elif kind == "stray":
                payloads.append(payload(sender, seq, tag=TAG + 1))
                expected.append((-1, -1, flags | STRAY))
            else:
                damaged = {"magic": 0xC502} if kind == "corrupt" else {}
                payloads.append(payload(sender if damaged else 40_000, seq, **damaged))
                expected.append((-1, -1, flags | CORRUPT))
        step = 1 if single else len(payloads)
        for at in range(0, len(payloads), step):
            arrived.append(batch(payloads[at : at + step], redelivered=redelivered))
    rows, _ = receive(*arrived)
    assert [(row[1], row[2], row[8]) for row in rows] == expected
    assert [row[6] for row in rows] == list(range(len(expected)))


@given(st.lists(st.tuples(messages, st.booleans(), st.sampled_from([20, 40, 64])), min_size=1, max_size=40))
def test_deferred_messages_become_the_same_rows(
    reads: list[tuple[list[tuple[str, int, int]], bool, int]],
) -> None:
    """Unpaced and paced: only the unpaced one records several reads together."""
    rows = []
    for unpaced in (True, False):
        log, counts = FakeLog(), ReceiverCounts(5)
        received_rows = ReceivedRows(log, TAG, unpaced=unpaced)
        for read_ns, (content, redelivered, size) in enumerate(reads, 10**6):
            payloads = [
                payload(sender, seq, tag=TAG + (kind == "stray"), magic=0xC501 + (kind == "corrupt"), size=size)
                for kind, sender, seq in content
            ]
            received_rows.take(counts, batch(payloads, redelivered=redelivered), read_ns)
        received_rows.flush_deferred(counts)
        assert received_rows.deferred == 0
        assert counts.arrivals == counts.batched == sum(len(content) for content, _, _ in reads)
        rows.append(log.rows.get(RECEIVED, []))
    assert rows[0] == rows[1]


def test_many_small_reads_are_few_appends_and_keep_their_times() -> None:
    log, counts = CountingLog(), ReceiverCounts(5)
    received_rows = ReceivedRows(log, TAG, unpaced=True)
    for read in range(200):
        received_rows.take(counts, batch([payload(3, 60 * read + n) for n in range(60)]), 10**6 + read)
    received_rows.flush_deferred(counts)
    rows = log.rows[RECEIVED]
    assert [(row[2], row[5], row[6]) for row in rows] == [(n, 10**6 + n // 60, n) for n in range(12_000)]
    assert log.appends <= 8


@pytest.mark.parametrize("size", [0, 1, 31])
def test_a_payload_too_short_for_a_stamp_is_corrupt(size: int) -> None:
    rows, _ = receive(batch([payload(1, 1, size=size)] * 2))
    assert [(row[1], row[7], row[8]) for row in rows] == [(-1, size, CORRUPT)] * 2


@pytest.mark.parametrize("intended_ns", [-(2**63), 2**63 - 1])
@pytest.mark.parametrize("count", [1, 2])
def test_a_stamp_with_absurd_times_does_not_end_the_receiver(intended_ns: int, count: int) -> None:
    payload_bytes = struct.pack(">HHIQqq", 0xC501, 1, TAG, 5, intended_ns, 6)
    rows, engine = receive(batch([payload_bytes] * count))
    assert [row[3] for row in rows] == [intended_ns] * count
    assert engine.failure is None


def test_the_share_on_the_batch_path_is_counted() -> None:
    channel = FakeReceiveChannel([batch([payload(1, n) for n in range(9)]), batch([payload(1, 9)], batched=False)])
    control = FakeControl(stop=lambda: True)
    engine = ReceiverEngine([Receiver(1, Group(), channel)], FakeLog(), control, tag=TAG)
    try:
        statistics = engine.run()
    finally:
        engine.close()
    assert statistics.messages == 10
    assert statistics.values.batch_share == pytest.approx(0.9)
    assert statistics.counts == {"queue://perf": 10}
    assert channel.close_starts == 1


def test_a_lost_connection_is_an_event_with_its_reason() -> None:
    channel = FakeReceiveChannel([])
    channel.closed = "the system has been silent for 20 s"
    control = FakeControl(stop=lambda: True)
    engine = ReceiverEngine([Receiver(4, Group(), channel)], FakeLog(), control, tag=TAG)
    try:
        engine.run()
        assert engine.failure == "the system has been silent for 20 s"
    finally:
        engine.close()
    assert control.events == [("disconnect", {"receiver": 4, "reason": "the system has been silent for 20 s"})]


def test_waiting_is_not_being_busy() -> None:
    channel = FakeReceiveChannel([batch([payload(1, 0)])])
    stop = threading.Event()
    timer = threading.Timer(0.2, stop.set)
    engine = ReceiverEngine([Receiver(4, Group(), channel)], FakeLog(), FakeControl(stop=stop.is_set), tag=TAG)
    timer.start()
    try:
        statistics = engine.run()
    finally:
        timer.join()
        engine.close()
    assert statistics.values.busy_share < 0.3


# -- order -----------------------------------------------------------------------------------------------------------


@given(st.lists(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 20)), min_size=1, max_size=10), max_size=5))
def test_out_of_order_is_below_something_earlier_of_the_same_sender(batches: list[list[tuple[int, int]]]) -> None:
    seen: list[tuple[int, int]] = []
    highest: dict[int, int] = {}
    for content in batches:
        senders = np.array([sender for sender, _ in content], np.int16)
        sequence = np.array([seq for _, seq in content], np.int64)
        flags = order_flags(senders, sequence, highest)
        for index, (sender, seq) in enumerate(content):
            late = any(other == sender and earlier > seq for other, earlier in seen)
            assert (flags is not None and bool(flags[index] & OUT_OF_ORDER)) == late
            seen.append((sender, seq))


# -- statistics ------------------------------------------------------------------------------------------------------


@given(st.lists(st.lists(st.integers(0, 10**10), max_size=30), max_size=5))
def test_a_distribution_is_as_good_as_its_samples(seconds: list[list[int]]) -> None:
    distribution = Distribution()
    for samples in seconds:
        half = len(samples) // 2
        if half:
            distribution.add(np.array(samples[:half], np.int64))
        for sample in samples[half:]:
            distribution.add_one(sample)
        check(distribution.fold(90.0), samples, 90.0)
    check(distribution.overall(50.0), [sample for samples in seconds for sample in samples], 50.0)


def check(found: int | None, samples: list[int], percent: float) -> None:
    if not samples:
        assert found is None
        return
    exact = int(np.percentile(np.array(samples), percent, method="inverted_cdf"))
    assert found is not None
    assert exact <= found <= exact * 1.004 + 1


@pytest.mark.parametrize("together", [True, False], ids=["in batches", "one by one"])
def test_slices_have_the_responses_of_their_senders_or_receivers(together: bool) -> None:
    limited = {
        "orders": SliceMembers(senders=[1, 2]),
        "readers": SliceMembers(receivers=[5]),
        "idle": SliceMembers([9]),
    }
    rows = SlicedRows(FakeLog(), TAG, limited, unpaced=False)
    mine, other = ReceiverCounts(5), ReceiverCounts(6)
    due_ns = 1000  # of message 0
    for counts, sender, waited_ns in ((mine, 1, 50), (other, 2, 60), (other, 3, 90), (mine, 3, 80)):
        messages = [payload(sender, 0), payload(sender, 0), payload(sender, 0, tag=TAG + 1)][: 2 if together else 3]
        rows.take(counts, batch(messages), due_ns + waited_ns)
    measured = {
        name: (each.second_response_p90_ns, each.second_response_max_ns) for name, each in rows.last_second().items()
    }
    assert measured == {"orders": (60, 60), "readers": (80, 80)}
    assert rows.last_second() == {}


def test_a_slow_receiver_settles_messages_when_it_has_consumed_them() -> None:
    channel = FakeReceiveChannel([batch([payload(1, seq) for seq in range(5)])])
    group = Group(delay=Duration(30_000_000))
    log = FakeLog()
    engine = ReceiverEngine(
        [Receiver(0, group, channel)], log, FakeControl(stop=lambda: channel.settled > 0), tag=TAG
    )  # fmt: skip
    begun_s = time.monotonic()
    engine.run()
    took_s = time.monotonic() - begun_s
    engine.close()
    assert len(log.rows[RECEIVED]) == 5
    assert took_s >= 5 * 0.030, "five messages of 30 ms each"


def test_a_receive_rate_is_a_delay() -> None:
    assert Group(receive_rate=400.0).consuming_ns == 2_500_000
    assert Group(delay=Duration(7)).consuming_ns == 7
    assert Group().consuming_ns == 0
