"""Do the workloads do what the seed says, and do their books see what really happened?

What happened is staged behind their backs: rows are taken out of the database, or put in twice; brokers are blocked or
go away. What they recorded is read with DuckDB and compared with what brokers and the database counted.
"""

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from crescendo.mlmq.broker.server import Broker
from mlmq_brokers import play, serving
from mlmq_client_groups import Played, experiment_of

EVERYBODY: list[dict[str, Any]] = [
    {"name": "relay", "kind": "one-way", "count": 6, "wait": "1ms"},
    {"name": "pairs", "kind": "paired", "count": 4, "wait": "1ms"},
    {"name": "fill", "kind": "producer", "count": 2, "wait": "2ms"},
    {"name": "empty", "kind": "consumer", "count": 3, "wait": "1ms"},
    {"name": "alone", "kind": "simple-send", "count": 2, "messages": 3},
]
for _group in EVERYBODY:
    _group["timeout"] = "60s"  # on a busy machine a second is soon over


def served(brokers: list[Broker], kind: str, outcome: str) -> int:
    return sum(broker.metrics.requests[kind, outcome] for broker in brokers)


def test_every_workload_conserves_its_messages_and_records_every_request(database_url: str, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with serving(database_url) as one, serving(database_url) as two:
            played = Played([one.address, two.address], tmp_path, experiment_of(EVERYBODY))
            await played.company.assemble()
            # Client i uses broker i mod 2, counted through all groups.
            assert [actor.client.broker for actor in played.company.actors] == [
                (one, two)[number % 2].address for number in range(17)
            ]
            await played.play()
            played.assert_conserved()
            for action, kind in (("CSndReq#SendMessage", "Send"), ("CSndReq#DequeueMessage", "Dequeue")):
                counts = f"select outcome, count(*) from {{spans}} where action = '{action}' group by all"  # noqa: S608
                rows = played.rows(counts)
                counted = Counter({outcome: served([one, two], kind, outcome) for outcome in ("ok", "empty")})
                assert Counter(dict(rows)) == +counted
            useful = "select count(*), sum(value) from {spans} where action not like '%/%' and outcome = 'ok'"
            ((count, sum_of_values),) = played.rows(useful)
            assert sum_of_values == count > 0
            # Every kind of client has sent, and the two that are alone have taken back exactly what they were told to.
            per_sender = dict(played.rows("select sender, count(*) from {sent} group by all"))
            assert set(per_sender) == set(range(12)) | {15, 16}
            assert per_sender[15] == per_sender[16] == 3
            wrong = "select count(*) from {received} r join {sent} s using (sender, seq) where r.receiver = r.sender"
            assert played.rows(wrong + " and r.receiver < 12")[0][0] == 0  # nobody relays or answers to itself

    play(scenario())
    assert_left_nothing(database_url)


def assert_left_nothing(url: str) -> None:
    async def look() -> None:
        connection = await asyncpg.connect(url)
        for table in ("message", "client", "queue"):
            assert await connection.fetchval(f"SELECT count(*) FROM mlmq.{table}") == 0, table  # noqa: S608
        await connection.close()

    asyncio.run(look())


async def tamper(url: str, statement: str) -> None:
    """Until it has changed a row."""
    connection = await asyncpg.connect(url)
    while await connection.execute(statement) not in {"DELETE 1", "INSERT 0 1"}:
        await asyncio.sleep(0.005)
    await connection.close()


STEAL = "DELETE FROM mlmq.message WHERE id = (SELECT min(id) FROM mlmq.message WHERE receiver IS {} NULL)"
COPY = """INSERT INTO mlmq.message (id, queue, sender, receiver, priority, context, sent_at, content)
          SELECT nextval('mlmq.message_number'), queue, sender, receiver, priority, context, sent_at, content
          FROM mlmq.message
          WHERE receiver IS {} NULL ORDER BY id LIMIT 1"""


@pytest.mark.parametrize(
    ("clients", "private", "statement", "words"),
    [
        (EVERYBODY[:1], "NOT", STEAL, "was stored, and never came"),
        (EVERYBODY[1:2], "NOT", STEAL, "was stored, and never came"),
        (EVERYBODY[2:4], "", STEAL, "was stored, and never came"),
        (EVERYBODY[:1], "NOT", COPY, "came twice"),
        (EVERYBODY[2:4], "", COPY, "came twice"),
    ],
    ids=["stolen token", "stolen request or response", "stolen from a queue", "copied token", "copied in a queue"],
)
def test_a_message_taken_or_doubled_behind_their_backs_is_a_violation(
    database_url: str, tmp_path: Path, clients: list[dict[str, Any]], private: str, statement: str, words: str
) -> None:
    slow = [{**group, "wait": "2ms" if group["kind"] == "producer" else "15ms"} for group in clients]

    async def scenario() -> None:
        # One request a statement: then what is sent lies in its queue before anybody is handed it.
        async with serving(database_url, batch=1) as broker:
            played = Played([broker.address], tmp_path, experiment_of(slow, measure="1500ms", drain="3s"))
            await played.play(lambda: tamper(database_url, statement.format(private)))
            assert played.findings.violations == 1, played.findings.violated
            assert words in played.findings.violated[0]

    play(scenario())


def test_what_nobody_answered_is_left_open_and_is_no_violation(database_url: str, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with serving(database_url) as broker:
            played = Played([broker.address], tmp_path, experiment_of(EVERYBODY, measure="800ms", drain="2s"))

            async def go_away() -> None:
                await asyncio.sleep(0.4)
                await broker.close()

            await played.play(go_away)
            assert played.findings.violations == 0, played.findings.violated
            assert played.findings.unresolved > 0
            assert played.findings.untold

    play(scenario())


def test_shed_requests_are_told_and_what_was_shed_is_sent_again(database_url: str, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with serving(database_url, workers=1, connections=1, batch=1, request_queue=1) as broker:
            clients = [{"name": "relay", "kind": "one-way", "count": 12, "poll": "0s"}]
            played = await Played([broker.address], tmp_path, experiment_of(clients)).play()
            played.assert_conserved()
            shed = played.rows("select count(*) from {spans} where outcome = 'overloaded' and action not like '%/%'")
            told = served([broker], "Send", "overloaded") + served([broker], "Dequeue", "overloaded")
            assert shed == [(told,)]
            assert told > 0

    play(scenario())


def test_who_polls_without_waiting_is_told_empty_and_that_is_not_useful(database_url: str, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with serving(database_url) as broker:
            clients = [
                {"name": "fill", "kind": "producer", "wait": "200ms"},
                {"name": "empty", "kind": "consumer", "poll": "0s", "wait": "5ms"},
            ]
            played = await Played([broker.address], tmp_path, experiment_of(clients)).play()
            played.assert_conserved()
            ((count, useful),) = played.rows("select count(*), sum(value) from {spans} where outcome = 'empty'")
            assert count > 0
            assert useful == 0

    play(scenario())


def test_an_answer_after_the_time_out_is_no_success(database_url: str, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with serving(database_url) as broker:
            clients = [{"name": "alone", "kind": "simple-send", "messages": 20, "timeout": "30ms", "breakup": False}]
            played = Played([broker.address], tmp_path, experiment_of(clients, measure="3s"))

            async def stall() -> None:
                """Nobody is answered while the table is locked."""
                connection = await asyncpg.connect(database_url)
                async with connection.transaction():
                    await connection.execute("LOCK TABLE mlmq.message IN ACCESS EXCLUSIVE MODE")
                    await asyncio.sleep(0.5)
                await connection.close()

            await played.play(stall)
            played.assert_conserved()
            late = played.rows("select outcome, value, duration_ns from {spans} where duration_ns > 30000000")
            assert late
            assert {(outcome, value) for outcome, value, _ in late} == {("timeout", 0.0)}
            assert max(duration_ns for _, _, duration_ns in late) > 300_000_000
            assert played.rows("select count(*) from {spans} where action like '%/%'") == [(0,)]  # no breakup was asked

    play(scenario())


def test_a_ramp_begins_group_by_group(database_url: str, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with serving(database_url) as broker:
            clients = [
                {"name": "relay", "kind": "one-way", "count": 6, "wait": "5ms", "group_size": 2, "group_delay": "400ms"}
            ]
            played = await Played([broker.address], tmp_path, experiment_of(clients, measure="1500ms")).play()
            played.assert_conserved()
            first = dict(played.rows("select source, min(t_ns - duration_ns) from {spans} group by all"))
            begun = [min(first[f"relay-{n}"], first[f"relay-{n + 1}"]) for n in (0, 2, 4)]
            # A client may begin late on a busy machine, never early.
            assert begun[1] - begun[0] > 350_000_000
            assert begun[2] - begun[0] > 750_000_000
            assert abs(first["relay-0"] - first["relay-1"]) < 350_000_000

    play(scenario())


def test_several_processes_share_a_queue_and_relay_among_their_own(database_url: str, tmp_path: Path) -> None:
    experiment = experiment_of(EVERYBODY, drain="4s", peers={"clients": 2})

    async def scenario() -> None:
        async with serving(database_url) as broker:
            both = [Played([broker.address], tmp_path, experiment, process) for process in range(2)]
            await asyncio.gather(*(played.play() for played in both))
            for played in both:
                played.assert_conserved()  # the recording is that of both together
            owners = [{actor.post.sender for actor in played.company.actors} for played in both]
            assert sorted(owners[0] | owners[1]) == list(range(17))
            crossed = both[0].rows("select distinct sender, receiver from {received}")
            through_the_queue = [pair for pair in crossed if pair[0] in {10, 11}]
            assert any(sender in owners[0] and receiver in owners[1] for sender, receiver in through_the_queue)
            assert all((sender in owners[0]) == (receiver in owners[0]) for sender, receiver in crossed if sender < 10)

    play(scenario())
