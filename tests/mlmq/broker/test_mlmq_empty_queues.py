"""Is a queue reported as empty only when it is?"""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from crescendo.mlmq.broker.empty_queues import EmptyQueues
from crescendo.wire.mlmq.operations import Dequeue, Message, Messages, Query

QUEUES, CLIENTS = (7, 8), (1, 2)
Stored = tuple[int, int | None]  # queue, and its receiver

steps = st.lists(
    st.tuples(
        st.sampled_from(["store", "notify", "query", "check"]),
        st.sampled_from(QUEUES),
        st.sampled_from(CLIENTS),
        st.sampled_from([None, *CLIENTS]),
        st.integers(1, 3),
    ),
    max_size=60,
)


def handed_out(stored: list[Stored]) -> Messages:
    return Messages(tuple(Message(n, queue, 9, to, 5, None, 0, 1, b"") for n, (queue, to) in enumerate(stored)))


@given(steps)
def test_a_notified_message_is_never_overlooked(steps: list[tuple[str, int, int, int | None, int]]) -> None:
    """Messages are stored and notified later, in any order; queries take them whether they were notified or not."""
    notified: Counter[int] = Counter()
    empty_queues = EmptyQueues(notified.__getitem__, lambda client: -client)
    held: list[Stored] = []
    unnotified: list[Stored] = []
    for what, queue, client, to, count in steps:
        request = Dequeue(client, Query(queue=queue), count)
        visible = [one for one in held if one[0] == queue and one[1] in {None, client}]
        if what == "store":
            held.append((queue, to))
            unnotified.append((queue, to))
        elif what == "notify" and unnotified:
            its_queue, its_receiver = unnotified.pop(0)
            notified[its_queue if its_receiver is None else -its_receiver] += 1
        elif what == "query":
            before = empty_queues.arrival_counts(request)
            for one in visible[:count]:
                held.remove(one)
            empty_queues.record_result(request, handed_out(visible[:count]), before)
        elif what == "check" and not unnotified:
            assert not (visible and empty_queues.is_known_empty(request))


def test_after_an_empty_query_only_arrivals_cause_another() -> None:
    notified: Counter[int] = Counter()
    empty_queues = EmptyQueues(notified.__getitem__, lambda client: -client)
    request = Dequeue(1, Query(queue=7))
    assert not empty_queues.is_known_empty(request)
    empty_queues.record_result(request, Messages(), empty_queues.arrival_counts(request))
    assert empty_queues.is_known_empty(request)
    assert not empty_queues.is_known_empty(Dequeue(2, Query(queue=7)))  # there may be a message to that client
    for _ in range(3):
        notified[7] += 1
        assert not empty_queues.is_known_empty(request)
        empty_queues.record_result(request, handed_out([(7, None)]), empty_queues.arrival_counts(request))
        assert empty_queues.is_known_empty(request)


def test_a_selective_query_proves_nothing() -> None:
    empty_queues = EmptyQueues(lambda key: 0, lambda client: -client)
    selective = Dequeue(1, Query(queue=7, context=3))
    empty_queues.record_result(selective, Messages(), empty_queues.arrival_counts(selective))
    assert not empty_queues.is_known_empty(Dequeue(1, Query(queue=7)))
    assert not empty_queues.is_known_empty(selective)
