"""Do the procedures work on every PostgreSQL at hand, not only on the one that is embedded by default?

Those in the wheel, and others whose directories of programs are listed in CRESCENDO_TEST_POSTGRES, separated by colons:
`CRESCENDO_TEST_POSTGRES=/usr/lib/postgresql/15/bin`.
"""

import os
from pathlib import Path
from typing import Any

import pytest

from crescendo.mlmq import postgres as embedded
from crescendo.mlmq.postgres import binaries, cluster
from crescendo.mlmq.storage import Database, initialise
from crescendo.mlmq.storage.health import durability_problems, statistics, write_check
from crescendo.processes.die_with_parent import die_with_parent
from crescendo.wire.mlmq.operations import (
    Abandon,
    Acknowledge,
    ConfigureQueue,
    Delivery,
    Dequeue,
    Done,
    Extend,
    Once,
    Order,
    Peek,
    Pending,
    PendingFound,
    Query,
    Send,
    SendMany,
    Settled,
)
from mlmq_requests import contents, one, public, registered, with_pool

LISTED = os.environ.get("CRESCENDO_TEST_POSTGRES", "")
OTHERS = [*list(binaries._installations())[1:], *map(Path, filter(None, LISTED.split(":")))]


@pytest.mark.parametrize(
    "programs", OTHERS, ids=lambda programs: f"PostgreSQL-{binaries._version(programs)}-{programs.parent.name}"
)
def test_every_procedure_works_on_this_version(programs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "find", lambda data: programs)
    server = embedded.start(on_fork=die_with_parent())
    try:
        with_pool(server.url(), everything)
    finally:
        server.stop()


async def everything(pool: Any, database: Database) -> None:
    async with pool.acquire() as connection:
        await initialise(connection)
        assert await durability_problems(connection) == []
        await write_check(connection, 30)
        assert (await statistics(connection, 30)).leases == 0
    first, second = await registered(database, "first", "second")
    queue, dead = await public(database, first.client, "q"), await public(database, first.client, "dead")
    # One statement: stored, handed over, and taken from the queue.
    await database.send([Send(first.client, b"stored", (queue,), 9)])
    sends = [
        Send(first.client, b"direct", receiver=second.client, once=Once(first.session, 0, 1)),
        Send(first.client, b"later", (queue,), 1, once=Once(first.session, 1, 1)),
    ]
    takes = [
        Dequeue(second.client, Query(second.queue), once=Once(second.session, 0, 1)),
        Dequeue(second.client, Query(queue), once=Once(second.session, 1, 1)),
    ]
    answers = (await database.serve([*sends, *takes])).answers
    assert [contents(answer) for answer in answers[2:]] == [[b"direct"], [b"stored"]]
    assert (await database.serve([*sends, *takes])).answers == answers
    for step in ("switched", "copied", "truncated"):
        assert await database.rotate_receipts(0, 3600) == step
        assert (await database.serve([*sends, *takes])).answers == answers
    assert await one(database, Abandon(second.client, (Once(second.session, 1, 2),))) == Done()
    assert contents(await one(database, Peek(first.client, Query(queue, order=Order.AGE), 9))) == [b"stored", b"later"]
    assert await database.count_available([Query(queue), Query(sender=first.client), Query(context=5)], 9) == [2, 2, 0]
    # Leases, limits, batches.
    assert await one(database, ConfigureQueue(first.client, queue, 2, dead, 3_600_000)) == Done()
    leased = await one(database, Dequeue(second.client, Query(sender=first.client), 1, 60_000))
    assert contents(leased) == [b"stored"]
    held = tuple(Delivery(message.id, message.delivery) for message in leased.messages)
    assert await one(database, Extend(second.client, held, 0)) == Settled()
    assert contents(await one(database, Dequeue(second.client, Query(dead), 1, 60_000))) == [b"stored"]
    again = tuple(
        Delivery(message, delivery + 1) for message, delivery in ((one.message, one.delivery) for one in held)
    )
    assert await one(database, Acknowledge(second.client, again)) == Settled()
    await one(database, SendMany(first.client, queue, (b"a", b"b"), delay_ms=1))
    pending = await one(database, Pending(first.client))
    assert isinstance(pending, PendingFound)
    assert sorted(contents(await one(database, Dequeue(second.client, Query(queue), 9)))) == [b"a", b"b", b"later"]
