"""Are messages sent when they are due, exactly as many as requested, and does a stall show in each of them?"""

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from crescendo.load.assignment import Quota, quota_of
from crescendo.load.engine.sender import Sender
from crescendo.load.engine.sender_engine import SenderEngine
from crescendo.load.protocols.interfaces import SettledMessages
from crescendo.model.connection_timeouts import ConnectionTimeouts
from crescendo.model.experiment_file import experiment_from
from crescendo.model.pacer import UNLIMITED, pacer_for
from crescendo.model.payload import PayloadSize
from crescendo.model.units import Duration
from crescendo.model.workload import Group, Settle, WindowMode
from crescendo.record.schema import SENT, SETTLED, Settlement
from crescendo.wire.stamp import MAGIC, ONE_STAMP, Stamps
from load_fakes import FakeControl, FakeLog, FakeSendChannel

TAG = 0xC0FFEE
MS = 1_000_000


class Harness:
    """Engines of a test and their sockets, which are closed whatever happens."""

    def __init__(self) -> None:
        self.log = FakeLog()
        self.control = FakeControl()
        self._engines: list[SenderEngine] = []
        self._timers: list[threading.Timer] = []

    def engine(self, *senders: Sender, drain_ns: int = 50 * MS) -> SenderEngine:
        engine = SenderEngine(list(senders), self.log, self.control, drain_ns=drain_ns)
        self._engines.append(engine)
        return engine

    def later(self, delay_s: float, action: object) -> None:
        assert callable(action)
        timer = threading.Timer(delay_s, action)
        self._timers.append(timer)
        timer.start()

    def close(self) -> None:
        for timer in self._timers:
            timer.join()
        for engine in self._engines:
            engine.close()


@pytest.fixture
def harness() -> Iterator[Harness]:
    made = Harness()
    yield made
    made.close()


def sender(
    channel: FakeSendChannel, *, rate: float, total: int = UNLIMITED, number: int = 1,
    settle: Settle = Settle.AT_MOST_ONCE, quota: Quota | None = None,
) -> Sender:  # fmt: skip
    group = Group(rate=rate, settle=settle)
    return Sender(number, group, pacer_for(group.rate), quota or Quota(total, UNLIMITED), channel, TAG)


def test_every_message_carries_its_own_intended_time(harness: Harness) -> None:
    channel = FakeSendChannel()
    t0_ns = time.monotonic_ns() + 5 * MS
    statistics = harness.engine(sender(channel, rate=10_000, total=1000)).run(t0_ns)
    assert len(channel.taken) == statistics.messages == 1000
    for n, (magic, number, tag, seq, intended_ns, sent_ns) in enumerate(channel.taken):
        assert (magic, number, tag, seq) == (0xC501, 1, TAG, n)
        assert intended_ns == t0_ns + n * 100_000
        assert sent_ns >= intended_ns
    assert time.monotonic_ns() - t0_ns >= 99 * MS
    assert harness.log.rows[SENT] == [(1, seq, 1, due, at, 256) for _, _, _, seq, due, at in channel.taken]


def test_senders_of_one_process_keep_their_own_schedules(harness: Harness) -> None:
    channels = [FakeSendChannel() for _ in range(3)]
    rates = [1000, 3000, 500]
    senders = [
        sender(channel, rate=rate, total=rate // 10, number=number)
        for number, (channel, rate) in enumerate(zip(channels, rates, strict=True))
    ]
    t0_ns = time.monotonic_ns()
    harness.engine(*senders).run(t0_ns)
    for channel, rate in zip(channels, rates, strict=True):
        assert [row[3] for row in channel.taken] == list(range(rate // 10))
        assert [row[4] - t0_ns for row in channel.taken] == [round(n * 1e9 / rate) for n in range(rate // 10)]


def test_a_stall_shows_in_every_message_and_is_not_called_lateness(harness: Harness) -> None:
    t0_ns = time.monotonic_ns() + 5 * MS
    stall = (t0_ns + 50 * MS, t0_ns + 200 * MS)

    def allow(_: int) -> int:
        return 0 if stall[0] <= time.monotonic_ns() < stall[1] else 1000

    channel = FakeSendChannel(allow=allow)
    harness.later((stall[1] - time.monotonic_ns()) / 1e9 + 0.001, channel.notify)
    statistics = harness.engine(sender(channel, rate=2000, total=600)).run(t0_ns)
    assert len(channel.taken) == 600
    inside = [(due, at) for *_, due, at in channel.taken if stall[0] <= due < stall[1]]
    assert len(inside) == 300  # rate times stall: no intended time was moved
    assert all(at >= stall[1] for _, at in inside)
    worst_ns = max(at - due for due, at in inside)
    assert worst_ns >= 149 * MS
    assert statistics.values.lateness_p99_ns < worst_ns / 2
    total_ns = statistics.t_ns - t0_ns
    assert 0.4 * 150 * MS <= statistics.values.blocked_share * total_ns <= 1.4 * 150 * MS


@pytest.mark.parametrize("prepares", [True, False])
def test_messages_are_the_same_whether_or_not_they_are_prepared(harness: Harness, prepares: bool) -> None:
    channels = [FakeSendChannel(), FakeSendChannel(allow=lambda taken: 150 - taken if taken < 150 else 64)]
    for channel in channels:
        channel.prepares = prepares
    t0_ns = time.monotonic_ns() + 20 * MS
    senders = [sender(channel, rate=2000, total=200, number=number) for number, channel in enumerate(channels)]
    statistics = harness.engine(*senders).run(t0_ns)
    assert statistics.messages == 400
    for number, channel in enumerate(channels):
        assert [row[:5] for row in channel.taken] == [
            (MAGIC, number, TAG, seq, t0_ns + seq * MS // 2) for seq in range(200)
        ]  # fmt: skip
        rows = [row for row in harness.log.rows[SENT] if row[0] == number]
        assert rows == [(number, seq, 1, due, at, 256) for _, _, _, seq, due, at in channel.taken]
        assert bool(channel.written) == prepares


def test_messages_sent_before_a_stall_are_recorded_before_it_ends(harness: Harness) -> None:
    limit, recorded = [30], []
    channel = FakeSendChannel(allow=lambda taken: limit[0] - taken)

    def resume() -> None:
        recorded.extend(row[1] for row in harness.log.rows[SENT])
        limit[0] = 1000
        channel.notify()

    harness.later(0.12, resume)
    harness.engine(sender(channel, rate=1000, total=150)).run(time.monotonic_ns() + 20 * MS)
    assert channel.written
    assert recorded == list(range(30))
    assert [row[1] for row in harness.log.rows[SENT]] == list(range(150))


def test_lateness_is_reported_when_the_generator_itself_is_late(harness: Harness) -> None:
    class Slow(FakeSendChannel):
        def take(self, stamps: Stamps) -> bool:
            time.sleep(0.02)
            return super().take(stamps)

    statistics = harness.engine(sender(Slow(capacity=8), rate=4000, total=80)).run(time.monotonic_ns())
    assert statistics.values.lateness_p99_ns > 50 * MS
    assert statistics.values.blocked_share < 0.05


def test_credit_in_small_amounts_sends_exactly_the_count(harness: Harness) -> None:
    granted = [7]
    channel = FakeSendChannel(allow=lambda taken: granted[0] - taken)

    def grant() -> None:
        granted[0] += 7
        channel.notify()

    for step in range(1, 15):
        harness.later(step * 0.004, grant)
    harness.engine(sender(channel, rate=100_000, total=100)).run(time.monotonic_ns())
    assert [row[3] for row in channel.taken] == list(range(100))


@pytest.mark.quiet
def test_unbounded_stops_in_time_and_its_intended_time_is_its_send_time(harness: Harness) -> None:
    channel = FakeSendChannel(capacity=16, allow=lambda taken: 16 if taken < 500_000 else 0)
    t0_ns = time.monotonic_ns()
    quota = Quota(UNLIMITED, 60 * MS)
    harness.engine(sender(channel, rate=0, quota=quota)).run(t0_ns)
    assert 60 * MS <= time.monotonic_ns() - t0_ns < 600 * MS
    assert len(channel.taken) > 100
    assert all(due == at for *_, due, at in channel.taken)
    assert channel.taken[-1][5] < t0_ns + 160 * MS
    assert [row[3] for row in channel.taken] == list(range(len(channel.taken)))


def test_an_unbounded_count_begins_after_the_warm_up(harness: Harness) -> None:
    channel = FakeSendChannel(capacity=10)
    t0_ns = time.monotonic_ns()
    quota = Quota(UNLIMITED, UNLIMITED, count_after_warmup=500, warmup_ns=20 * MS)
    harness.engine(sender(channel, rate=0, quota=quota)).run(t0_ns)
    after = sum(at >= t0_ns + 20 * MS for *_, at in channel.taken)
    assert 500 <= after <= 510  # a batch that was started just before may be sent just after


def test_a_closed_channel_is_reported_at_once_and_ends_its_sender(harness: Harness) -> None:
    channel = FakeSendChannel()

    def disconnect() -> None:
        channel.closed = "the system closed the connection"
        channel.notify()

    harness.later(0.03, disconnect)
    start_s = time.monotonic()
    engine = harness.engine(sender(channel, rate=0.1, total=100))  # its next message is due in ten seconds
    statistics = engine.run(time.monotonic_ns())
    assert time.monotonic() - start_s < 2
    assert harness.control.events == [("disconnect", {"sender": 1, "reason": "the system closed the connection"})]
    assert engine.failure == "the system closed the connection"
    assert statistics.messages == len(channel.taken) == 1


def test_one_closed_channel_does_not_stop_the_others(harness: Harness) -> None:
    broken, sound = FakeSendChannel(), FakeSendChannel()
    broken.closed = "gone"
    engine = harness.engine(sender(broken, rate=1000, total=50), sender(sound, rate=1000, total=50, number=2))
    engine.run(time.monotonic_ns())
    assert (len(broken.taken), len(sound.taken)) == (0, 50)
    assert engine.failure is None
    assert harness.control.events == [("disconnect", {"sender": 1, "reason": "gone"})]


def test_outcomes_become_ranges_with_their_send_times(harness: Harness) -> None:
    channel = FakeSendChannel(capacity=10)

    def settle() -> None:
        channel.outcomes = [SettledMessages(range(15), 1), SettledMessages(range(15, 30), 3)]
        channel.notify()

    harness.later(0.1, settle)
    engine = harness.engine(sender(channel, rate=100_000, total=30, settle=Settle.AT_LEAST_ONCE), drain_ns=5000 * MS)
    statistics = engine.run(time.monotonic_ns())
    covered = []
    for number, first, last, sent_ns, settled_ns, outcome in harness.log.rows[SETTLED]:
        assert number == 1
        for seq in range(first, last + 1):
            covered.append(seq)
            assert sent_ns == channel.taken[seq][5]
            assert settled_ns > sent_ns
            assert outcome == (1 if seq < 15 else 3)
    assert covered == list(range(30))
    assert statistics.values.unsettled == 0


class SlowlySettling(FakeSendChannel):
    """Settles a few messages at each read, oldest first, and keeps the most that were ever in flight."""

    def __init__(self, step: int) -> None:
        super().__init__(capacity=64)
        self._step = step
        self._settled = 0
        self.max_in_flight = 0

    def take(self, stamps: Stamps) -> bool:
        done = super().take(stamps)
        self.max_in_flight = max(self.max_in_flight, len(self.taken) - self._settled)
        self.notify()
        return done

    def pump(self) -> list[SettledMessages]:
        self.read_pending()
        first, self._settled = self._settled, min(self._settled + self._step, len(self.taken))
        if self._settled < len(self.taken):
            self.notify()
        return [SettledMessages(range(first, self._settled), 1)]


@pytest.mark.parametrize(("size", "step", "rate"), [(1, 1, 0), (7, 3, 0), (40, 64, 0), (10, 2, 5000)])
def test_a_window_limits_the_messages_in_flight(harness: Harness, size: int, step: int, rate: float) -> None:
    channel = SlowlySettling(step)
    group = Group(rate=rate, settle=Settle.AT_LEAST_ONCE, mode=WindowMode(size))
    one = Sender(1, group, pacer_for(rate), Quota(500, UNLIMITED), channel, TAG)
    statistics = harness.engine(one, drain_ns=5000 * MS).run(time.monotonic_ns())
    assert len(channel.taken) == 500
    assert channel.max_in_flight <= size
    assert channel.max_in_flight == size or rate
    assert statistics.values.unsettled == 0


def test_messages_that_are_never_settled_are_awaited_and_counted(harness: Harness) -> None:
    channel = FakeSendChannel()
    engine = harness.engine(sender(channel, rate=100_000, total=30, settle=Settle.AT_LEAST_ONCE), drain_ns=80 * MS)
    start_ns = time.monotonic_ns()
    statistics = engine.run(start_ns)
    assert time.monotonic_ns() - start_ns >= 80 * MS
    assert statistics.values.unsettled == 30


def test_a_connection_that_settles_nothing_is_given_up_and_its_messages_are_sent_again(harness: Harness) -> None:
    silent, settling = FakeSendChannel(), SlowlySettling(step=10)
    group = Group(
        rate=100_000, settle=Settle.AT_LEAST_ONCE, connection=ConnectionTimeouts(confirm_timeout=Duration(100 * MS))
    )
    waiting = Sender(
        1, group, pacer_for(group.rate), Quota(30, UNLIMITED), silent, TAG, redial=lambda attempt: settling
    )
    statistics = harness.engine(waiting, drain_ns=60_000 * MS).run(time.monotonic_ns())
    assert silent.closed is not None
    assert "messages for 0.1 s" in silent.closed
    assert len(settling.taken) == 30
    assert statistics.values.unsettled == 0
    silent.release()


def test_a_new_connection_that_sends_all_the_rest_at_once_is_reported(harness: Harness) -> None:
    lost, fresh = FakeSendChannel(), FakeSendChannel()
    lost.closed = "gone"
    group = Group(rate=100_000, settle=Settle.AT_MOST_ONCE)
    waiting = Sender(1, group, pacer_for(group.rate), Quota(30, UNLIMITED), lost, TAG, redial=lambda attempt: fresh)
    harness.engine(waiting).run(time.monotonic_ns())
    assert len(fresh.taken) == 30
    assert [kind for kind, _ in harness.control.events] == ["disconnect", "reconnect"]
    lost.release()


def test_a_stop_request_ends_the_run(harness: Harness) -> None:
    channel = FakeSendChannel()
    harness.control = FakeControl(stop=lambda: len(channel.taken) >= 100)
    harness.engine(sender(channel, rate=2000)).run(time.monotonic_ns())
    assert 100 <= len(channel.taken) < 1000


def test_messages_that_were_due_but_not_sent_are_counted(harness: Harness) -> None:
    t0_ns = time.monotonic_ns()
    channel = FakeSendChannel(allow=lambda taken: 20 - taken)
    harness.control = FakeControl(stop=lambda: time.monotonic_ns() > t0_ns + 150 * MS)
    statistics = harness.engine(sender(channel, rate=1000, total=100)).run(t0_ns)
    assert (statistics.messages, statistics.values.unsent) == (20, 80)


# -- how much is sent ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rate", "phases", "expected"),
    [
        (1000, {"warmup": "2s", "measure": "3s"}, Quota(5000, 5 * 10**9)),
        (1000, {"warmup": "2s", "measure": "77 messages"}, Quota(2077, UNLIMITED)),
        (0.5, {"warmup": 0, "measure": "3s"}, Quota(2, 3 * 10**9)),
        (0, {"warmup": "2s", "measure": "3s"}, Quota(UNLIMITED, 5 * 10**9)),
        (0, {"warmup": "2s", "measure": "77 messages"}, Quota(UNLIMITED, UNLIMITED, 77, 2 * 10**9)),
    ],
)
def test_a_quota_is_what_the_phases_hold(rate: float, phases: dict[str, object], expected: Quota) -> None:
    experiment = experiment_from({"name": "x", "workload": {"rate": rate}, "phases": phases})
    assert quota_of(experiment.pacer_of(experiment.workload[0], 0), experiment.phases) == expected


def test_the_stamps_fit_the_batch(harness: Harness) -> None:
    channel = FakeSendChannel(capacity=4)
    harness.engine(sender(channel, rate=1000, total=1, number=32_767)).run(time.monotonic_ns())
    assert np.array_equal(channel.stamps["sender"], [32_767] * 4)


def test_messages_have_the_sizes_of_their_numbers_and_keep_their_order(harness: Harness) -> None:
    channel = SizedChannel()
    group = Group(rate=4000, settle=Settle.AT_MOST_ONCE, size=PayloadSize.parse("~100"))
    one = Sender(3, group, pacer_for(group.rate), Quota(200, UNLIMITED), channel, TAG, seed=9)
    harness.engine(one).run(time.monotonic_ns())
    expected = group.size.sizes(9, 3)(0, 200).tolist()
    assert [len(body) for body in channel.bodies_sent] == expected
    stamps = [ONE_STAMP.unpack_from(body) for body in channel.bodies_sent]
    assert [seq for _, _, _, seq, _, _ in stamps] == list(range(200))
    assert {(magic, sender, tag) for magic, sender, tag, *_ in stamps} == {(MAGIC, 3, TAG)}
    assert [row[5] for row in harness.log.rows[SENT]] == expected


def test_lines_of_a_file_follow_the_stamps(harness: Harness, tmp_path: Path) -> None:
    path = tmp_path / "lines"
    path.write_text("first\nthe second\n\n")
    channel = SizedChannel()
    group = Group(rate=4000, settle=Settle.AT_MOST_ONCE, size=PayloadSize.parse({"file": str(path)}))
    harness.engine(Sender(0, group, pacer_for(group.rate), Quota(5, UNLIMITED), channel, TAG)).run(time.monotonic_ns())
    assert [body[32:] for body in channel.bodies_sent] == [b"first", b"the second", b"", b"first", b"the second"]


class SizedChannel(FakeSendChannel):
    """Keeps whole messages; takes a few at a time."""

    def __init__(self) -> None:
        super().__init__(capacity=7)
        self.bodies_sent: list[bytes] = []

    def send(self, first_seq: int, count: int) -> None:
        self.bodies_sent += [body.tobytes() for body in self.bodies[:count]]


def test_a_full_buffer_sheds_and_reports_it(harness: Harness) -> None:
    channel = FakeSendChannel(allow=lambda taken: 10 if taken < 50 else 0)
    group = Group(rate=5000, settle=Settle.AT_MOST_ONCE, buffer=20)
    one = Sender(0, group, pacer_for(group.rate), Quota(500, UNLIMITED), channel, TAG)
    harness.control = FakeControl(stop=lambda: one.schedule.shed + one.window.sent + 20 >= 500)
    statistics = harness.engine(one).run(time.monotonic_ns())
    shed = [seq for row in harness.log.rows[SETTLED] for seq in range(row[1], row[2] + 1)]
    assert {row[5] for row in harness.log.rows[SETTLED]} == {int(Settlement.SHED)}
    sent = [row[1] for row in harness.log.rows[SENT]]
    assert not set(shed) & set(sent)
    assert statistics.values.shed == len(shed) == one.schedule.shed
    assert sorted([*sent, *shed])[-1] >= 480
    assert len(shed) + len(sent) + 20 >= 500
