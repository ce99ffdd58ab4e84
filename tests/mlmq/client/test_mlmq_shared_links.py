"""Do clients that share a connection stay independent of each other?"""

import asyncio

import pytest

from crescendo.mlmq.client import Backoff, Query, SharedLinks
from crescendo.model.errors import ConfigError
from mlmq_brokers import client, run_scenario, serving

FAST = Backoff(first_s=0.02, most_s=0.2)


def test_clients_share_connections_and_get_their_own_answers(database_url: str) -> None:
    async def scenario() -> None:
        links = SharedLinks(2)
        async with (
            serving(database_url) as broker,
            client("a", broker.address, links=links) as a,
            client("b", broker.address, links=links) as b,
            client("c", broker.address, links=links) as c,
        ):
            assert links.open == len(broker.connections) == 2
            waiting = asyncio.create_task(a.dequeue_messages(Query(a.own_queue), 1, wait_s=20.0))
            for number in range(20):
                await asyncio.gather(*(one.send_message_to_client(one.id, b"%d" % number) for one in (b, c)))
            for one in (b, c):
                found = [message.content for message in await one.dequeue_messages(Query(one.own_queue), 30)]
                assert found == [b"%d" % number for number in range(20)]
            await b.send_message_to_client(a.id, b"for a")
            assert [message.content for message in await waiting] == [b"for a"]
            await b.close()
            assert links.open == 2, "a client that leaves takes no connection away from others"
            await a.send_message_to_client(a.id, b"still there")
        links.close()
        assert links.open == 0

    run_scenario(scenario())


def test_a_connection_that_is_lost_is_replaced_once_for_all_its_clients(database_url: str) -> None:
    async def scenario() -> None:
        links = SharedLinks(8)
        options = {"links": links, "backoff": FAST}
        async with (
            serving(database_url) as broker,
            client("a", broker.address, **options) as a,
            client("b", broker.address, **options) as b,
        ):
            for lost in list(broker.connections):
                lost.abort()
            await asyncio.gather(*(one.send_message_to_client(one.id, b"x") for one in (a, b) for _ in range(10)))
            assert links.open == len(broker.connections) == 1
            for one in (a, b):
                assert len(await one.dequeue_messages(Query(one.own_queue), 30)) == 10
        links.close()

    run_scenario(scenario())


@pytest.mark.parametrize("clients", [0, 33])
def test_too_many_clients_for_a_connection_are_refused(clients: int) -> None:
    with pytest.raises(ConfigError, match="1 to 32 can share"):
        SharedLinks(clients)
