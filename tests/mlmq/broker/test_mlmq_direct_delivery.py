"""Is a sent message handed to a waiting dequeue exactly as if it had been queued first?"""

import asyncio
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from crescendo.mlmq.storage import Database
from crescendo.mlmq.storage.send_and_dequeue import match_dequeues
from crescendo.wire.mlmq.operations import Dequeue, Messages, Once, Query, Refusal, Refused, Send, Sent
from mlmq_requests import contents, one, public, registered, with_pool

few = st.integers(1, 3)
sends = st.lists(st.builds(lambda to, priority, context: Send(9, b"", (to,), priority, None, context),
                           few, few, st.none() | few), max_size=6)  # fmt: skip
dequeues = st.lists(st.builds(lambda to, context: Dequeue(8, Query(to, context=context)), few, st.none() | few),
                    max_size=6)  # fmt: skip


@given(sends, dequeues)
def test_each_dequeue_gets_the_message_it_would_choose_in_turn(sent: list[Send], wanted: list[Dequeue]) -> None:
    left = list(range(len(sent)))
    expected: list[int | None] = [None] * len(sent)
    for position, request in enumerate(wanted):
        query = request.query
        suitable = [
            at for at in left if sent[at].queues == (query.queue,) and query.context in {None, sent[at].context}
        ]
        if suitable:
            chosen = max(suitable, key=lambda at: (sent[at].priority, -at))
            expected[chosen] = position
            left.remove(chosen)
    assert match_dequeues(sent, wanted) == expected


def test_a_message_for_a_client_of_several_queues_comes_before_a_lower_one_in_its_own_queue(database_url: str) -> None:
    async def work(_pool: Any, database: Database) -> None:
        sender, receiver = await registered(database, "sender", "receiver")
        other = await public(database, receiver.client, "another")
        high = Send(sender.client, b"high", receiver=receiver.client, priority=6, once=Once(sender.session, 0, 1))
        low = Send(sender.client, b"low", (receiver.queue,), priority=4, once=Once(sender.session, 1, 1))
        dequeues = [
            Dequeue(receiver.client, Query(queue), once=Once(receiver.session, slot, 1))
            for slot, queue in enumerate((other, receiver.queue, receiver.queue))
        ]
        answers = (await database.serve([high, low, *dequeues])).answers
        assert list(map(contents, answers[2:])) == [[], [b"high"], [b"low"]]

    with_pool(database_url, work)


def test_a_handed_over_message_is_never_queued_and_can_be_requested_again(database_url: str) -> None:
    async def work(pool: Any, database: Database) -> None:
        sender, receiver = await registered(database, "sender", "receiver")
        send = Send(sender.client, b"here", receiver=receiver.client, new_context=True, once=Once(sender.session, 0, 1))
        dequeue = Dequeue(receiver.client, Query(receiver.queue), once=Once(receiver.session, 0, 1))
        first = (await database.serve([send, dequeue])).answers
        assert isinstance(first[0], Sent)
        assert isinstance(first[1], Messages)
        (message,) = first[1].messages
        assert (message.id,) == first[0].messages
        assert message.context == first[0].context is not None
        assert (message.sender, message.receiver, message.delivery) == (sender.client, receiver.client, 1)
        # Not even a dead row: it was never stored.
        assert await pool.fetchval("SELECT pg_relation_size('mlmq.message')") == 0
        assert (await database.serve([send, dequeue])).answers == first
        assert (await database.serve([dequeue])).answers == first[1:]

    with_pool(database_url, work)


def test_queued_messages_come_before_sent_ones(database_url: str) -> None:
    async def work(_pool: Any, database: Database) -> None:
        sender, receiver = await registered(database, "sender", "receiver")
        queue = await public(database, sender.client, "q")
        await database.send([Send(sender.client, b"older", (queue,))])
        send = Send(sender.client, b"newer", (queue,), once=Once(sender.session, 0, 1))
        dequeue = Dequeue(receiver.client, Query(queue), once=Once(receiver.session, 0, 1))
        _, found = (await database.serve([send, dequeue])).answers
        assert contents(found) == [b"older"]
        assert contents(await one(database, Dequeue(receiver.client, Query(queue)))) == [b"newer"]

    with_pool(database_url, work)


def test_nothing_is_handed_to_a_client_that_may_not_read_the_queue(database_url: str) -> None:
    async def work(_pool: Any, database: Database) -> None:
        sender, receiver = await registered(database, "sender", "receiver")
        send = Send(sender.client, b"private", (receiver.queue,), once=Once(sender.session, 0, 1))
        dequeue = Dequeue(sender.client, Query(receiver.queue), once=Once(receiver.session, 0, 1))
        sent, refused = (await database.serve([send, dequeue])).answers
        assert isinstance(sent, Sent)
        assert isinstance(refused, Refused)
        assert refused.reason is Refusal.NOT_YOURS
        assert contents(await one(database, Dequeue(receiver.client, Query(receiver.queue)))) == [b"private"]

    with_pool(database_url, work)


def test_concurrent_batches_on_two_connections_hand_out_each_message_once(database_url: str) -> None:
    """Some by hand-over, some from the queue, while the other connection does the same in the same queue."""
    rounds, width = 60, 8

    async def work(_pool: Any, database: Database) -> None:
        clients = await registered(database, *(f"client-{n}" for n in range(2 * width)))
        queue = await public(database, clients[0].client, "q")
        sent: list[int] = []
        received: list[int] = []

        async def drive(group: list[Any], extra: int) -> None:
            for number in range(1, rounds + 1):
                sends = [Send(p.client, b"x", (queue,), once=Once(p.session, 0, 2 * number)) for p in group[:-extra]]
                takes = [Dequeue(p.client, Query(queue), once=Once(p.session, 0, 2 * number + 1)) for p in group]
                for found in (await database.serve([*sends, *takes])).answers:
                    if isinstance(found, Sent):
                        sent.extend(found.messages)
                    else:
                        assert isinstance(found, Messages)
                        received.extend(message.id for message in found.messages)

        await asyncio.gather(drive(clients[:width], 1), drive(clients[width:], 3))
        while rest := await one(database, Dequeue(clients[0].client, Query(queue), 100)):
            if not contents(rest):
                break
            received.extend(message.id for message in rest.messages)  # type: ignore[union-attr]
        assert sorted(received) == sorted(sent)
        assert len(set(sent)) == len(sent) == rounds * (2 * width - 4)

    with_pool(database_url, work)
