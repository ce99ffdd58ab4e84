"""Does own delay plus the time held make up the whole delay of every message, in any interleaving, in virtual time?"""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crescendo.load.engine.held_time import HeldTime
from crescendo.load.engine.in_flight import SeqRange
from crescendo.load.engine.sent_log import SentLog
from crescendo.load.engine.stalls import STALL_NS
from crescendo.load.engine.statistics import Distribution
from crescendo.record.schema import OWN_DELAY, SENT
from load_fakes import FakeLog

INTERVAL = 10
SIZE = 64


class VirtualSender:
    """One connection in virtual time: it sends as a sender does, and notes by itself what it was held for."""

    def __init__(self) -> None:
        self.now = self.next_seq = 0
        self.holds: list[tuple[int, int]] = []
        self.held = HeldTime()
        self.rows = FakeLog()
        self.own_delay = Distribution()
        self.log = SentLog(3, self.rows, self.held, self.own_delay)

    @property
    def due(self) -> int:
        return self.now // INTERVAL + 1 - self.next_seq

    def hold(self, readable_after: int, looked_after: int) -> None:
        """Find no room; it becomes readable, and is found a while later."""
        self.held.begin(self.now)
        self.holds.append((self.now, self.now + readable_after))
        self.held.end(self.now + readable_after)
        self.now += readable_after + looked_after

    def send_together(self, limit: int, write_ns: int) -> None:
        count = min(limit, self.due)
        if count <= 0:
            return
        seq_range = SeqRange(self.next_seq, count)
        intended = [seq * INTERVAL for seq in range(self.next_seq, self.next_seq + count)]
        if count < 4:
            self.log.add_few(seq_range, intended, self.now, SIZE, self.now + write_ns)
        else:
            interruptions = [(0, count, write_ns)] if write_ns > STALL_NS else None
            self.log.add(seq_range, np.array(intended), self.now, SIZE, interruptions)
        self.next_seq += count
        self.now += write_ns

    def send_one_by_one(self, gaps: list[int]) -> None:
        """Prepared messages: logged together, sent at their own times."""
        intended, sent = [], []
        for gap in gaps:
            if self.due <= 0:
                self.now = self.next_seq * INTERVAL
            self.now += gap
            intended.append(self.next_seq * INTERVAL)
            sent.append(self.now)
            self.next_seq += 1
        if sent:
            self.log.add(SeqRange(self.next_seq - len(sent), len(sent)), np.array(intended), np.array(sent), SIZE)

    def own_ns(self) -> dict[int, int]:
        """As a reader of the recording finds it."""
        own = {seq: max(sent - intended, 0) for _, seq, _, intended, sent, _ in self.rows.rows.get(SENT, [])}
        for _, first, last, own_ns in self.rows.rows.get(OWN_DELAY, []):
            own |= dict.fromkeys(range(first, last + 1), own_ns)
        return own


steps = st.lists(
    st.one_of(
        st.tuples(st.just("hold"), st.integers(0, 60), st.integers(0, 30)),
        st.tuples(st.just("late"), st.integers(0, 90), st.just(0)),
        st.tuples(st.just("together"), st.integers(1, 12), st.integers(0, 5)),
        st.tuples(st.just("each"), st.integers(1, 5), st.integers(0, 12)),
    ),
    max_size=40,
)


@given(steps)
def test_own_and_held_make_up_the_delay_of_every_message(script: list[tuple[str, int, int]]) -> None:
    sender = VirtualSender()
    for action, first, second in script:
        match action:
            case "hold":
                sender.hold(first, second)
            case "late":
                sender.now += first
            case "together":
                sender.send_together(first, second)
            case "each":
                sender.send_one_by_one([second] * first)
    own = sender.own_ns()
    assert sorted(own) == list(range(sender.next_seq))
    for _, seq, _, intended, sent, _ in sender.rows.rows.get(SENT, []):
        held = sum(max(min(end, sent) - max(begin, intended), 0) for begin, end in sender.holds)
        assert own[seq] + held == sent - intended
        assert own[seq] >= 0
        if not any(begin <= intended < end for begin, end in sender.holds):
            late_before = min((begin for begin, _ in sender.holds if begin > intended), default=sent) - intended
            assert own[seq] >= min(late_before, sent - intended), "what was late before a hold stays late"
    longest = sender.own_delay.overall(100.0)
    assert (longest or 0) == pytest.approx(max(own.values(), default=0), rel=0.004, abs=1)


def test_messages_without_a_hold_have_no_row() -> None:
    sender = VirtualSender()
    sender.now = 500
    sender.send_together(20, 1)
    sender.send_one_by_one([3, 3, 3])
    assert OWN_DELAY not in sender.rows.rows


def test_messages_due_during_a_hold_share_one_row() -> None:
    sender = VirtualSender()
    sender.send_together(1, 0)
    sender.now = INTERVAL
    sender.hold(400, 5)
    sender.send_together(1000, 1)
    assert sender.rows.rows[OWN_DELAY] == [(3, 1, 40, 5)]  # the next one was due when it ended


@pytest.mark.parametrize("count", [2, 12])
def test_an_interrupted_write_is_own_delay_although_the_send_time_is_earlier(count: int) -> None:
    sender = VirtualSender()
    sender.now = count * INTERVAL
    sender.send_together(count, 3 * STALL_NS)
    assert sender.own_ns() == {seq: (count - seq) * INTERVAL + 3 * STALL_NS for seq in range(count)}


@given(
    st.lists(
        st.tuples(st.integers(0, 50), st.integers(0, 50), st.integers(0, 50), st.integers(1, 9), st.integers(1, 30)),
        max_size=20,
    )
)
def test_without_a_schedule_own_time_is_all_that_was_neither_held_nor_writing(
    batches: list[tuple[int, int, int, int, int]],
) -> None:
    rows = FakeLog()
    log = SentLog(3, rows, HeldTime(), Distribution())
    now = seq = expected = 0
    log.start(0)
    for idle, held, unnoticed, count, write in batches:
        room = now + idle + held if held else 0
        begun: Any = now
        now += idle + held + unnoticed
        expected += now - max(begun, room)
        log.add_unscheduled(SeqRange(seq, count), now, SIZE, now + write, room)
        now += write
        seq += count
    assert sum(row[3] for row in rows.rows.get(OWN_DELAY, [])) == expected
    assert [row[1] for row in rows.rows.get(SENT, [])] == list(range(seq))
