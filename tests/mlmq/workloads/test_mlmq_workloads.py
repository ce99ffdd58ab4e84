"""Do the workloads behave as specified, and do their accounts detect what really happened?

Faults are injected from outside: rows are deleted from the database, or inserted twice; brokers are blocked or closed.
The recording is read with DuckDB and compared with the counters of brokers and database.
"""

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from crescendo.mlmq.broker.server import Broker
from mlmq_brokers import run_scenario, serving
from mlmq_client_groups import ClientGroupRun, experiment_of

ALL_KINDS: list[dict[str, Any]] = [
    {"name": "relay", "kind": "one-way", "count": 6, "wait": "1ms", "per_connection": 4},
    {"name": "pairs", "kind": "paired", "count": 4, "wait": "1ms"},
    {"name": "fill", "kind": "producer", "count": 2, "wait": "2ms", "per_connection": 4},
    {"name": "empty", "kind": "consumer", "count": 3, "wait": "1ms"},
    {"name": "alone", "kind": "simple-send", "count": 2, "messages": 3},
]
for _group in ALL_KINDS:
    _group["timeout"] = "60s"  # a second is too short on a busy machine


def served(brokers: list[Broker], kind: str, outcome: str) -> int:
    return sum(broker.metrics.requests[kind, outcome] for broker in brokers)


def test_every_workload_conserves_its_messages_and_records_every_request(database_url: str, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with serving(database_url) as one, serving(database_url) as two:
            group_run = ClientGroupRun([one.address, two.address], tmp_path, experiment_of(ALL_KINDS))
            await group_run.group.connect()
            # Client i uses broker i mod 2, counted across all groups.
            assert [actor.client.broker for actor in group_run.group.actors] == [
                (one, two)[number % 2].address for number in range(17)
            ]
            # Relays and producers share two connections to each broker; everybody else has one.
            assert [len(broker.connections) for broker in (one, two)] == [2 + 5, 2 + 4]
            await group_run.run()
            group_run.assert_conserved()
            for action, kind in (("CSndReq#SendMessage", "Send"), ("CSndReq#DequeueMessage", "Dequeue")):
                counts = f"select outcome, count(*) from {{spans}} where action = '{action}' group by all"  # noqa: S608
                rows = group_run.rows(counts)
                counted = Counter({outcome: served([one, two], kind, outcome) for outcome in ("ok", "empty")})
                assert Counter(dict(rows)) == +counted
            useful = "select count(*), sum(value) from {spans} where action not like '%/%' and outcome = 'ok'"
            ((count, sum_of_values),) = group_run.rows(useful)
            assert sum_of_values == count > 0
            # Every kind of client has sent, and the simple-send clients have taken back exactly their messages.
            per_sender = dict(group_run.rows("select sender, count(*) from {sent} group by all"))
            assert set(per_sender) == set(range(12)) | {15, 16}
            assert per_sender[15] == per_sender[16] == 3
            wrong = "select count(*) from {received} r join {sent} s using (sender, seq) where r.receiver = r.sender"
            assert group_run.rows(wrong + " and r.receiver < 12")[0][0] == 0  # no client relays or answers to itself

    run_scenario(scenario())
    assert_empty_database(database_url)


def assert_empty_database(url: str) -> None:
    async def count_rows() -> None:
        connection = await asyncpg.connect(url)
        for table in ("message", "client", "queue"):
            assert await connection.fetchval(f"SELECT count(*) FROM mlmq.{table}") == 0, table  # noqa: S608
        await connection.close()

    asyncio.run(count_rows())


async def tamper(url: str, statement: str) -> None:
    """Repeat the statement until it has changed a row."""
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
    ("clients", "private", "statement", "text"),
    [
        (ALL_KINDS[:1], "NOT", STEAL, "was stored and never received"),
        (ALL_KINDS[1:2], "NOT", STEAL, "was stored and never received"),
        (ALL_KINDS[2:4], "", STEAL, "was stored and never received"),
        (ALL_KINDS[:1], "NOT", COPY, "arrived twice"),
        (ALL_KINDS[2:4], "", COPY, "arrived twice"),
    ],
    ids=["stolen token", "stolen request or response", "stolen from a queue", "copied token", "copied in a queue"],
)
def test_a_message_deleted_or_duplicated_in_the_database_is_a_violation(
    database_url: str, tmp_path: Path, clients: list[dict[str, Any]], private: str, statement: str, text: str
) -> None:
    slow = [{**group, "wait": "2ms" if group["kind"] == "producer" else "15ms"} for group in clients]

    async def scenario() -> None:
        # One request per statement: then every message is stored in its queue before it is handed out.
        async with serving(database_url, batch=1) as broker:
            group_run = ClientGroupRun([broker.address], tmp_path, experiment_of(slow, measure="1500ms", drain="8s"))
            await group_run.run(lambda: tamper(database_url, statement.format(private)))
            assert group_run.findings.violations == 1, group_run.findings.violation_texts
            assert text in group_run.findings.violation_texts[0]

    run_scenario(scenario())


def test_unanswered_requests_are_unresolved_and_not_violations(database_url: str, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with serving(database_url) as broker:
            group_run = ClientGroupRun(
                [broker.address], tmp_path, experiment_of(ALL_KINDS, measure="800ms", drain="2s")
            )

            async def close_broker() -> None:
                await asyncio.sleep(0.4)
                await broker.close()

            await group_run.run(close_broker)
            assert group_run.findings.violations == 0, group_run.findings.violation_texts
            assert group_run.findings.unresolved > 0
            assert group_run.findings.unresolved_texts

    run_scenario(scenario())


def test_shed_requests_are_counted_and_sent_again(database_url: str, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with serving(database_url, workers=1, connections=1, batch=1, request_queue=1) as broker:
            clients = [{"name": "relay", "kind": "one-way", "count": 12, "poll": "0s"}]
            group_run = await ClientGroupRun([broker.address], tmp_path, experiment_of(clients)).run()
            group_run.assert_conserved()
            shed = group_run.rows("select count(*) from {spans} where outcome = 'overloaded' and action not like '%/%'")
            refused = served([broker], "Send", "overloaded") + served([broker], "Dequeue", "overloaded")
            assert shed == [(refused,)]
            assert refused > 0

    run_scenario(scenario())


def test_an_empty_poll_without_waiting_is_not_useful(database_url: str, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with serving(database_url) as broker:
            clients = [
                {"name": "fill", "kind": "producer", "wait": "200ms"},
                {"name": "empty", "kind": "consumer", "poll": "0s", "wait": "5ms"},
            ]
            group_run = await ClientGroupRun([broker.address], tmp_path, experiment_of(clients)).run()
            group_run.assert_conserved()
            ((count, useful),) = group_run.rows("select count(*), sum(value) from {spans} where outcome = 'empty'")
            assert count > 0
            assert useful == 0

    run_scenario(scenario())


def test_an_answer_after_the_timeout_is_not_a_success(database_url: str, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with serving(database_url) as broker:
            patience = {"timeout": "30ms", "wait": "10ms"}  # with pauses, it is still at it when the table is locked
            clients = [{"name": "alone", "kind": "simple-send", "messages": 60, "breakup": False, **patience}]
            group_run = ClientGroupRun([broker.address], tmp_path, experiment_of(clients, measure="3s"))

            async def stall() -> None:
                """No request is answered while the table is locked."""
                connection = await asyncpg.connect(database_url)
                async with connection.transaction():
                    await connection.execute("LOCK TABLE mlmq.message IN ACCESS EXCLUSIVE MODE")
                    await asyncio.sleep(0.5)
                await connection.close()

            await group_run.run(stall)
            group_run.assert_conserved()
            late = group_run.rows("select outcome, value, duration_ns from {spans} where duration_ns > 30000000")
            assert late
            assert {(outcome, value) for outcome, value, _ in late} == {("timeout", 0.0)}
            assert max(duration_ns for _, _, duration_ns in late) > 300_000_000
            assert group_run.rows("select count(*) from {spans} where action like '%/%'") == [
                (0,)
            ]  # no breakup was requested

    run_scenario(scenario())


def test_a_ramp_starts_group_by_group(database_url: str, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with serving(database_url) as broker:
            clients = [
                {"name": "relay", "kind": "one-way", "count": 6, "wait": "5ms", "group_size": 2, "group_delay": "400ms"}
            ]
            group_run = await ClientGroupRun([broker.address], tmp_path, experiment_of(clients, measure="1500ms")).run()
            group_run.assert_conserved()
            first = dict(group_run.rows("select source, min(t_ns - duration_ns) from {spans} group by all"))
            begun = [min(first[f"relay-{n}"], first[f"relay-{n + 1}"]) for n in (0, 2, 4)]
            # A client may start late on a busy machine, never early.
            assert begun[1] - begun[0] > 350_000_000
            assert begun[2] - begun[0] > 750_000_000
            assert abs(first["relay-0"] - first["relay-1"]) < 350_000_000

    run_scenario(scenario())


def test_several_processes_share_a_queue_and_relay_within_each_process(database_url: str, tmp_path: Path) -> None:
    experiment = experiment_of(ALL_KINDS, drain="15s", peers={"clients": 2})

    async def scenario() -> None:
        async with serving(database_url) as broker:
            both = [ClientGroupRun([broker.address], tmp_path, experiment, process) for process in range(2)]
            await asyncio.gather(*(group_run.run() for group_run in both))
            for group_run in both:
                group_run.assert_conserved()  # both share one recording
            owners = [{actor.identity.sender for actor in group_run.group.actors} for group_run in both]
            assert sorted(owners[0] | owners[1]) == list(range(17))
            crossed = both[0].rows("select distinct sender, receiver from {received}")
            through_the_queue = [pair for pair in crossed if pair[0] in {10, 11}]
            assert any(sender in owners[0] and receiver in owners[1] for sender, receiver in through_the_queue)
            assert all((sender in owners[0]) == (receiver in owners[0]) for sender, receiver in crossed if sender < 10)

    run_scenario(scenario())
