"""Does `crescendo mlmq` show and change the queues of a running database?"""

import asyncio
import base64
import json
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from typer.testing import CliRunner

from crescendo.cli.main import app
from crescendo.mlmq import postgres as embedded
from crescendo.mlmq.storage import Database, initialise
from crescendo.model.errors import ConfigError
from crescendo.wire.mlmq.operations import (
    ConfigureQueue,
    CreateQueue,
    Dequeue,
    Messages,
    Query,
    QueueFound,
    Register,
    Registered,
    Send,
)

HOUR_MS = 3_600_000


def crescendo(*arguments: str) -> Any:
    result = CliRunner().invoke(app, ["mlmq", *arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout) if "--json" in arguments else result.stdout


async def fill(url: str) -> None:
    """Two queues with a waiting, a leased, a delayed and a dead message."""
    connection = await asyncpg.connect(url)
    await initialise(connection)
    await connection.close()
    async with asyncpg.create_pool(url, min_size=1, max_size=2) as pool:
        database = Database(pool)
        (me,) = (await database.register([Register("me")])).answers
        assert isinstance(me, Registered)
        found = (await database.create_queue([CreateQueue(me.client, "jobs"), CreateQueue(me.client, "dead")])).answers
        jobs, dead = (one.queue for one in found if isinstance(one, QueueFound))
        await database.serve([ConfigureQueue(me.client, jobs, 1, dead, HOUR_MS)])
        await database.send([Send(me.client, b"poison \xff", (jobs,), 9)])
        await database.dequeue([Dequeue(me.client, Query(jobs), 1, 1)])
        await asyncio.sleep(0.05)
        await database.send([Send(me.client, b"leased", (jobs,), 8)])
        (taken,) = (await database.dequeue([Dequeue(me.client, Query(jobs), 1, HOUR_MS)])).answers
        assert isinstance(taken, Messages)
        assert [message.content for message in taken.messages] == [b"leased"]
        await database.send([Send(me.client, b"delayed", (jobs,), 7, delay_ms=HOUR_MS), Send(me.client, b"x", (jobs,))])


async def clean(url: str) -> None:
    connection = await asyncpg.connect(url)
    await connection.execute("DROP SCHEMA IF EXISTS mlmq CASCADE")
    await connection.close()


def test_queues_are_shown_and_messages_moved_and_purged(postgres: embedded.Server, tmp_path: Path) -> None:
    where = ("--data", str(postgres.directory))
    try:
        asyncio.run(fill(postgres.url()))
        assert "1 deliveries, then dead, kept 3600 s" in crescendo("queues", *where)
        queues = {queue["name"]: queue for queue in crescendo("queues", *where, "--json")}
        counts = {
            name: [queue[kind] for kind in ("waiting", "leased", "delayed", "dead")] for name, queue in queues.items()
        }
        assert counts == {"jobs": [1, 1, 1, 0], "dead": [1, 0, 0, 1], "me": [0, 0, 0, 0]}
        shown = crescendo("peek", "dead", *where)
        assert "dead letter of jobs" in shown
        assert r"poison \xff" in shown
        found = crescendo("peek", "jobs", *where, "--json")
        texts = [(one["state"], base64.b64decode(one["content"])) for one in found]
        assert texts == [("leased", b"leased"), ("delayed", b"delayed"), ("waiting", b"x")]
        assert crescendo("move", "dead", "jobs", *where, "--json") == {"moved": 1}
        moved = crescendo("peek", "jobs", *where, "--json")[0]
        assert (moved["delivery"], moved["dead_from"], moved["priority"]) == (1, None, 9)
        assert "3 messages deleted from jobs" in crescendo("purge", "jobs", *where)
        assert [one["state"] for one in crescendo("peek", "jobs", *where, "--json")] == ["leased"]
        with pytest.raises(ConfigError, match="there is no queue 'nowhere'"):
            crescendo("purge", "nowhere", *where)
    finally:
        asyncio.run(clean(postgres.url()))
    with pytest.raises(ConfigError, match="no MLMQ schema"):
        crescendo("queues", *where)
    with pytest.raises(ConfigError, match="no embedded database runs there"):
        crescendo("queues", "--data", str(tmp_path))
    with pytest.raises(ConfigError, match="which database"):
        crescendo("queues")
