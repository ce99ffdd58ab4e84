"""Does every operation of the client interface, through client and broker, do what the tables show?"""

import asyncio
import secrets
from typing import Any

import asyncpg
import pytest

from crescendo.mlmq.client import AsyncClient, Client, Order, Query, RefusedError
from crescendo.model.errors import ConfigError
from crescendo.wire.mlmq.operations import MAX_CONTENT_BYTES, Refusal
from mlmq_brokers import client, run_scenario, serving


async def rows(url: str, statement: str, *values: Any) -> list[tuple[Any, ...]]:
    connection = await asyncpg.connect(url)
    try:
        return [tuple(row) for row in await connection.fetch(statement, *values)]
    finally:
        await connection.close()


def test_clients_and_queues_are_created_found_and_deleted(database_url: str) -> None:
    async def scenario() -> None:
        async with serving(database_url) as broker, client("ann", broker.address) as ann:
            async with client("bob", broker.address) as bob:
                assert await rows(database_url, "SELECT id, name FROM mlmq.client ORDER BY id") == [
                    (ann.id, "ann"),
                    (bob.id, "bob"),
                ]
                orders = await ann.create_queue("orders")
                assert (await bob.create_queue("orders")).queue == orders.queue
                assert (orders.name, orders.client, orders.owner) == ("orders", None, ann.id)
                found = await ann.lookup_client("bob")
                assert found is not None
                assert found.client == bob.id
                assert await ann.lookup_client("nobody") is None
                for known in (bob.id, "bob"):
                    own = await ann.lookup_client_queue(known)
                    assert own is not None
                    assert (own.queue, own.client) == (bob.own_queue, bob.id)
                assert await ann.lookup_client_queue("nowhere") is None
                assert await ann.lookup_client_queue(999_999) is None
                with pytest.raises(RefusedError, match="not yours"):
                    await bob.delete_queue(orders.queue)
                with pytest.raises(RefusedError, match="name taken"):
                    await bob.create_queue("ann")
                await ann.delete_queue(orders.queue)
                with pytest.raises(RefusedError) as caught:
                    await ann.delete_queue(orders.queue)
                assert caught.value.reason is Refusal.NO_SUCH_QUEUE
                assert await rows(database_url, "SELECT name FROM mlmq.queue ORDER BY id") == [("ann",), ("bob",)]
                await bob.deregister()
                with pytest.raises(ConfigError, match="register"):
                    await bob.peek_message(Query(queue=1))
            assert await rows(database_url, "SELECT name FROM mlmq.client") == [("ann",)]

    run_scenario(scenario())


def test_messages_are_sent_peeked_and_dequeued_in_order(database_url: str) -> None:
    async def scenario() -> None:
        async with serving(database_url) as broker, client("ann", broker.address) as ann:
            left = (await ann.create_queue("left")).queue
            right = (await ann.create_queue("right")).queue
            for content, priority in ((b"low", 1), (b"high", 10), (b"middle", 5), (b"high too", 10)):
                await ann.send_message(left, content, priority)
            both = await ann.send_message([left, right], b"", 1)
            assert len(both.messages) == 2
            stored = await rows(database_url, "SELECT queue, priority, content FROM mlmq.message ORDER BY id")
            assert stored[-2:] == [(left, 1, b""), (right, 1, b"")]
            assert await ann.queues_with_pending_messages() == (
                0,
                (await ann.lookup_client_queue("left"), await ann.lookup_client_queue("right")),
            )
            peeked = await ann.peek_message(Query(queue=left))
            assert peeked is not None
            assert (peeked.content, peeked.delivery) == (b"high", 0)
            oldest = await ann.dequeue_message(Query(queue=left, order=Order.AGE))
            assert oldest is not None
            assert oldest.content == b"low"
            rest = await ann.dequeue_messages(Query(queue=left), 10)
            assert [message.content for message in rest] == [b"high", b"high too", b"middle", b""]
            assert await ann.dequeue_message(Query(queue=left)) is None
            assert await rows(database_url, "SELECT queue FROM mlmq.message") == [(right,)]

    run_scenario(scenario())


def test_a_request_gets_its_own_response(database_url: str) -> None:
    async def scenario() -> None:
        async with (
            serving(database_url) as broker,
            client("ann", broker.address) as ann,
            client("bob", broker.address) as bob,
        ):
            contexts = [await ann.send_request_to_client(bob.id, b"question %d" % n) for n in range(2)]
            assert len(set(contexts)) == 2
            for _ in contexts:
                question = await bob.dequeue_message(Query(queue=bob.own_queue))
                assert question is not None
                assert question.context is not None
                await bob.send_response_to_client(question.sender, question.context, question.content + b", answered")
            await bob.send_message_to_client(ann.id, b"something else")
            assert (await ann.queues_with_pending_messages())[0] == 3
            for n, context in reversed(list(enumerate(contexts))):
                answer = await ann.dequeue_message(Query(queue=ann.own_queue, context=context))
                assert answer is not None
                assert answer.content == b"question %d, answered" % n
            other = await ann.dequeue_message(Query(sender=bob.id))
            assert other is not None
            assert (other.content, other.context) == (b"something else", None)

    run_scenario(scenario())


def test_a_lease_keeps_a_message_until_it_is_acknowledged_or_released(database_url: str) -> None:
    async def scenario() -> None:
        async with (
            serving(database_url, poll=20_000_000) as broker,
            client("ann", broker.address) as ann,
            client("bob", broker.address) as bob,
        ):
            queue = (await ann.create_queue("work")).queue
            await ann.send_message(queue, b"job")
            first = await ann.dequeue_message(Query(queue=queue), lease_s=600)
            assert first is not None
            assert not first.redelivered
            assert await bob.dequeue_message(Query(queue=queue)) is None
            waiting = asyncio.create_task(bob.dequeue_message(Query(queue=queue), wait_s=30, lease_s=600))
            assert (await ann.extend(first, lease_s=0)).gone == ()
            again = await waiting  # nothing was sent: the poll found the released message
            assert again is not None
            assert again.redelivered
            assert [gone.message for gone in (await ann.acknowledge(first)).gone] == [first.id]
            assert (await bob.acknowledge(again)).gone == ()
            assert await rows(database_url, "SELECT id FROM mlmq.message") == []

    run_scenario(scenario())


def test_limits_are_enforced_with_an_error_answer(database_url: str) -> None:
    async def scenario() -> None:
        async with serving(database_url) as broker, client("ann", broker.address) as ann:
            queue = (await ann.create_queue("q")).queue
            await ann.send_message(queue, b"x" * MAX_CONTENT_BYTES)
            with pytest.raises(RefusedError) as caught:
                await ann.send_message(queue, b"x" * (MAX_CONTENT_BYTES + 1))
            assert caught.value.reason is Refusal.TOO_LARGE
            for wrong in (
                ann.send_message(queue, b"", 11),
                ann.send_message(queue, b"", 0),
                ann.create_queue("n" * 51),
                ann.create_queue(""),
                ann.dequeue_messages(Query(queue=queue), 101),
            ):
                with pytest.raises(RefusedError) as caught:
                    await wrong
                assert caught.value.reason is Refusal.INVALID
            with pytest.raises(RefusedError, match="no such queue"):
                await ann.send_message([queue, 999_999], b"all or none")
            assert await rows(database_url, "SELECT count(*) FROM mlmq.message") == [(1,)]

    run_scenario(scenario())


def test_fifty_parallel_creations_of_one_name_give_one_id(database_url: str) -> None:
    async def scenario() -> None:
        async with serving(database_url) as one, serving(database_url) as two:
            clients = [AsyncClient("same", [(one, two)[n % 2].address], timeout_s=30) for n in range(50)]
            registered = await asyncio.gather(*(each.register() for each in clients))
            created = await asyncio.gather(*(each.create_queue("shared") for each in clients))
            assert len({answer.client for answer in registered}) == 1
            assert len({answer.session for answer in registered}) == 50
            assert len({answer.queue for answer in created}) == 1
            for each in clients:
                await each.close()

    run_scenario(scenario())


def test_a_blocking_program_needs_no_event_loop(database_url: str, tmp_path: Any) -> None:
    from mlmq_brokers import process

    with process(database_url, tmp_path) as broker, Client("plain", [broker.address]) as plain:
        assert plain.is_connected
        plain.register()
        queue = plain.create_queue("plain queue").queue
        content = secrets.token_bytes(300)
        plain.send_message(queue, content, 3)
        peeked = plain.peek_message(Query(queue=queue))
        taken = plain.dequeue_message(Query(queue=queue), wait_s=1, lease_s=60)
        assert peeked is not None
        assert taken is not None
        assert (peeked.content, taken.content) == (content, content)
        assert plain.extend(taken, lease_s=90).gone == ()
        assert plain.acknowledge(taken).gone == ()
        context = plain.send_request_to_client(plain.id, b"to myself")
        plain.send_response_to_client(plain.id, context, b"from myself")
        plain.send_message_to_client(plain.id, b"as well")
        assert plain.queues_with_pending_messages() == (3, ())
        assert [m.content for m in plain.dequeue_messages(Query(queue=plain.own_queue, context=context), 9)] == [
            b"to myself",
            b"from myself",
        ]
        found = plain.lookup_client("plain")
        assert found is not None
        assert found.client == plain.id
        own = plain.lookup_client_queue(plain.id)
        assert own is not None
        assert own.queue == plain.own_queue
        plain.delete_queue(queue)
        plain.deregister()
