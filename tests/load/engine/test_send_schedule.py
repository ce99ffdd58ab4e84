"""Is every message sent once, resent when it must be, or shed and counted?"""

from hypothesis import given
from hypothesis import strategies as st

from crescendo.load.assignment import Quota
from crescendo.load.engine.in_flight import SeqRange
from crescendo.load.engine.reconnect import ReconnectingChannel
from crescendo.load.engine.send_schedule import SendSchedule
from crescendo.load.engine.send_window import MAX_CREDIT_WAIT_NS, SendWindow
from crescendo.model.pacer import UNLIMITED, pacer_for
from crescendo.model.workload import Group
from load_fakes import FakeSendChannel

MS = 1_000_000


def a_schedule(buffer: int | None = None) -> SendSchedule:
    return SendSchedule(pacer_for(1000), Quota(100, UNLIMITED), buffer)


def a_window(rate: float = 1000.0) -> SendWindow:
    channel = FakeSendChannel()
    channel.release()
    return SendWindow(ReconnectingChannel(channel), Group(rate=rate))


@given(st.lists(st.tuples(st.integers(0, 9), st.booleans(), st.integers(0, 99), st.integers(0, 99)), max_size=40))
def test_no_message_is_forgotten_whatever_is_settled_or_lost(steps: list[tuple[int, bool, int, int]]) -> None:
    schedule, window = a_schedule(), a_window()
    attempts = dict.fromkeys(range(100), 0)
    unsettled: set[int] = set()
    settled: set[int] = set()
    for count, disconnects, first, last in steps:
        due = schedule.due(99 * MS)
        if count and due:
            seq_range = schedule.take(min(count, due))
            for seq in range(seq_range.first_seq, seq_range.first_seq + seq_range.length):
                attempts[seq] += 1
                assert seq_range.attempt == attempts[seq]
                assert seq not in unsettled | settled
                unsettled.add(seq)
            window.add(seq_range, 5)
        found = {seq for seq in unsettled if first <= seq <= last}
        before = window.in_flight
        window.settle(range(first, last + 1))
        assert before - window.in_flight == len(found)
        unsettled -= found
        settled |= found
        if disconnects:
            schedule.put_back(*window.take_unsettled())
            unsettled.clear()
        assert window.in_flight == len(unsettled)
        assert schedule.due(99 * MS) == 100 - len(settled) - len(unsettled)
    assert window.sent == sum(tried > 0 for tried in attempts.values())


def test_a_resent_message_keeps_the_time_of_its_first_attempt() -> None:
    schedule, window = a_schedule(), a_window()
    window.add(schedule.take(10), 111)
    window.settle(range(2, 5))
    schedule.put_back(*window.take_unsettled())
    again = [schedule.take(100), schedule.take(100)]
    assert again == [SeqRange(0, 2, 2, 111), SeqRange(5, 5, 2, 111)]
    window.add(again[0], 222)
    schedule.put_back(*window.take_unsettled())
    assert schedule.take(100) == SeqRange(0, 2, 3, 111)


def test_a_full_buffer_sheds_the_newest() -> None:
    schedule = a_schedule(buffer=5)
    assert schedule.shed_overflow(9 * MS, room=2) == range(
        7, 10
    )  # ten are due: two are sent, five wait, three do not fit
    assert schedule.due(9 * MS) == 7
    assert schedule.take(2) == SeqRange(0, 2)
    assert schedule.shed_overflow(12 * MS, room=0) == range(10, 13)
    assert schedule.take(100) == SeqRange(2, 5)
    assert schedule.shed_overflow(13 * MS, room=0) == range(0)
    assert schedule.take(100) == SeqRange(13, 1)
    assert schedule.shed == 6


def test_without_a_buffer_nothing_is_shed() -> None:
    schedule = a_schedule()
    assert schedule.shed_overflow(50 * MS, room=0) == range(0)
    assert schedule.due(50 * MS) == 51


def test_a_small_batch_waits_only_while_many_are_in_flight_and_not_for_long() -> None:
    window = a_window(rate=0)
    window.add(SeqRange(0, 80), 5 * MS)
    assert window.should_wait_for_credit(19, 5 * MS)
    assert not window.should_wait_for_credit(20, 5 * MS)
    assert not window.should_wait_for_credit(1, 5 * MS + MAX_CREDIT_WAIT_NS)
    window.settle(range(80))
    assert not window.should_wait_for_credit(1, 5 * MS), "no settlement in flight would free more credit"


def test_a_paced_sender_does_not_wait_for_more_credit() -> None:
    window = a_window()
    window.add(SeqRange(0, 80), 5 * MS)
    assert not window.should_wait_for_credit(1, 5 * MS)
