"""Is every message sent once, resent when it must be, or shed and counted?"""

from hypothesis import given
from hypothesis import strategies as st

from crescendo.load.assignment import Quota
from crescendo.load.engine.in_flight import SeqRange
from crescendo.load.engine.sender import MAX_CREDIT_WAIT_NS, Sender
from crescendo.model.pacer import UNLIMITED, pacer_for
from crescendo.model.workload import Group
from load_fakes import FakeSendChannel

MS = 1_000_000


def a_sender(**group: object) -> Sender:
    made = Group(rate=1000.0, **group)  # type: ignore[arg-type]
    channel = FakeSendChannel()
    channel.release()
    return Sender(1, made, pacer_for(1000), Quota(100, UNLIMITED), channel, 7)


@given(st.lists(st.tuples(st.integers(0, 9), st.booleans(), st.integers(0, 99), st.integers(0, 99)), max_size=40))
def test_no_message_is_forgotten_whatever_is_settled_or_lost(steps: list[tuple[int, bool, int, int]]) -> None:
    sender = a_sender()
    attempts = dict.fromkeys(range(100), 0)
    unsettled: set[int] = set()
    settled: set[int] = set()
    for count, disconnects, first, last in steps:
        due = sender.due(99 * MS)
        if count and due:
            seq_range = sender.next_range(min(count, due))
            for seq in range(seq_range.first_seq, seq_range.first_seq + seq_range.length):
                attempts[seq] += 1
                assert seq_range.attempt == attempts[seq]
                assert seq not in unsettled | settled
                unsettled.add(seq)
            sender.mark_sent(seq_range, 5)
        found = {seq for seq in unsettled if first <= seq <= last}
        before = sender.in_flight
        sender.settle(range(first, last + 1))
        assert before - sender.in_flight == len(found)
        unsettled -= found
        settled |= found
        if disconnects:
            assert sender.requeue_unsettled() == len(unsettled)
            unsettled.clear()
        assert sender.in_flight == len(unsettled)
        assert sender.due(99 * MS) == 100 - len(settled) - len(unsettled)
    assert sender.sent == sum(tried > 0 for tried in attempts.values())


def test_a_resent_message_keeps_the_time_of_its_first_attempt() -> None:
    sender = a_sender()
    sender.mark_sent(sender.next_range(10), 111)
    sender.settle(range(2, 5))
    sender.requeue_unsettled()
    again = [sender.next_range(100), sender.next_range(100)]
    assert again == [SeqRange(0, 2, 2, 111), SeqRange(5, 5, 2, 111)]
    sender.mark_sent(again[0], 222)
    sender.requeue_unsettled()
    assert sender.next_range(100) == SeqRange(0, 2, 3, 111)


def test_a_full_buffer_sheds_the_newest() -> None:
    sender = a_sender(buffer=5)
    assert sender.shed_overflow(9 * MS, room=2) == range(
        7, 10
    )  # ten are due: two are sent, five wait, three do not fit
    assert sender.due(9 * MS) == 7
    assert sender.next_range(2) == SeqRange(0, 2)
    assert sender.shed_overflow(12 * MS, room=0) == range(10, 13)
    assert sender.next_range(100) == SeqRange(2, 5)
    assert sender.shed_overflow(13 * MS, room=0) == range(0)
    assert sender.next_range(100) == SeqRange(13, 1)
    assert sender.shed == 6


def test_without_a_buffer_nothing_is_shed() -> None:
    sender = a_sender()
    assert sender.shed_overflow(50 * MS, room=0) == range(0)
    assert sender.due(50 * MS) == 51


def test_a_small_batch_waits_only_while_many_are_in_flight_and_not_for_long() -> None:
    sender = a_sender()
    sender.group = Group(rate=0)
    sender.mark_sent(sender.next_range(80), 5 * MS)
    assert sender.should_wait_for_credit(19, 5 * MS)
    assert not sender.should_wait_for_credit(20, 5 * MS)
    assert not sender.should_wait_for_credit(1, 5 * MS + MAX_CREDIT_WAIT_NS)
    sender.settle(range(80))
    assert not sender.should_wait_for_credit(1, 5 * MS), "no settlement in flight would free more credit"


def test_a_paced_sender_does_not_wait_for_more_credit() -> None:
    sender = a_sender()
    sender.mark_sent(sender.next_range(80), 5 * MS)
    assert not sender.should_wait_for_credit(1, 5 * MS)
