"""Is a queue called empty only when it is?"""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from crescendo.mlmq.broker.empty_queues import EmptyQueues
from crescendo.wire.mlmq.operations import Dequeue, Message, Messages, Query

QUEUES, CLIENTS = (7, 8), (1, 2)
Stored = tuple[int, int | None]  # queue, and whom it is meant for

steps = st.lists(
    st.tuples(
        st.sampled_from(["store", "tell", "look", "ask"]),
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
def test_what_was_told_of_is_never_overlooked(steps: list[tuple[str, int, int, int | None, int]]) -> None:
    """Messages are stored and told of later, in any order; looks take them whether they were told of or not."""
    told: Counter[int] = Counter()
    emptiness = EmptyQueues(told.__getitem__, lambda client: -client)
    held: list[Stored] = []
    untold: list[Stored] = []
    for what, queue, client, to, count in steps:
        request = Dequeue(client, Query(queue=queue), count)
        visible = [one for one in held if one[0] == queue and one[1] in {None, client}]
        if what == "store":
            held.append((queue, to))
            untold.append((queue, to))
        elif what == "tell" and untold:
            its_queue, its_receiver = untold.pop(0)
            told[its_queue if its_receiver is None else -its_receiver] += 1
        elif what == "look":
            before = emptiness.before(request)
            for one in visible[:count]:
                held.remove(one)
            emptiness.looked(request, handed_out(visible[:count]), before)
        elif what == "ask" and not untold:
            assert not (visible and emptiness.certain(request))


def test_after_an_empty_look_only_what_comes_is_looked_for() -> None:
    told: Counter[int] = Counter()
    emptiness = EmptyQueues(told.__getitem__, lambda client: -client)
    request = Dequeue(1, Query(queue=7))
    assert not emptiness.certain(request)
    emptiness.looked(request, Messages(), emptiness.before(request))
    assert emptiness.certain(request)
    assert not emptiness.certain(Dequeue(2, Query(queue=7)))  # something may be meant for that one
    for _ in range(3):
        told[7] += 1
        assert not emptiness.certain(request)
        emptiness.looked(request, handed_out([(7, None)]), emptiness.before(request))
        assert emptiness.certain(request)


def test_a_choosy_look_proves_nothing() -> None:
    emptiness = EmptyQueues(lambda key: 0, lambda client: -client)
    choosy = Dequeue(1, Query(queue=7, context=3))
    emptiness.looked(choosy, Messages(), emptiness.before(choosy))
    assert not emptiness.certain(Dequeue(1, Query(queue=7)))
    assert not emptiness.certain(choosy)
