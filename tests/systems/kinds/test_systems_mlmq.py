"""Does MLMQ honour its settings, keep its messages when it is killed, and leave neither files nor secrets behind?"""

import asyncio
import json
import os
import stat
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import asyncpg
import psutil
import pytest

from broker_traces import AWKWARD_PASSWORD, PASSWORD_MARK
from crescendo.client.mlmq import brokers_of, pass_a_message
from crescendo.load.protocols.mlmq import MlmqReceiver
from crescendo.mlmq import postgres
from crescendo.mlmq.client import Client, Query
from crescendo.model.errors import ConfigError, PeerError
from crescendo.model.workload import Group
from crescendo.processes.die_with_parent import die_with_parent
from crescendo.systems.instance import RunningInstance, start
from crescendo.systems.kinds.mlmq import MLMQ_SYSTEM
from crescendo.systems.settings import settings_of

TIMEOUT_S = 60.0
PASSWORD = "hush/:@ hush"
PORTS = {"mlmq": 7001, "management": 7002, "mlmq-2": 7003, "management-2": 7004}


def until(done: Callable[[], Any]) -> None:
    deadline_s = time.monotonic() + TIMEOUT_S
    while not done():
        assert time.monotonic() < deadline_s
        time.sleep(0.02)


def family(instance: RunningInstance) -> list[psutil.Process]:
    root = psutil.Process(instance.pid)
    return [root, *root.children(recursive=True)]


def broker_on(instance: RunningInstance, address: str) -> psutil.Process:
    port = int(address.rpartition(":")[2])
    for process in family(instance):
        if any(one.laddr.port == port for one in process.net_connections("tcp") if one.status == psutil.CONN_LISTEN):
            return process
    raise AssertionError(f"no process listens on {address}")


@pytest.fixture(scope="module")
def killable(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningInstance]:
    """Two brokers that may be killed."""
    directory = tmp_path_factory.mktemp("a place with spaces") / "instance"
    settings = {"brokers": 2, "workers": 3, "performance_log": True}
    logs = directory.parent / "logs"
    instance = start(MLMQ_SYSTEM, settings, directory=directory, on_fork=die_with_parent(), keep_logs=logs)
    processes = family(instance)
    data_dirs = [directory / "data" / "postgres", *(outside / "postgres" for outside in instance.outside_dirs)]
    assert data_dirs[-1].exists()
    if instance.outside_dirs:  # as root: nobody else can enter pytest's directories
        outside = data_dirs[-1].parent
        assert (stat.S_IMODE(outside.stat().st_mode), outside.stat().st_uid) == (0o711, os.geteuid())
        assert stat.S_IMODE(data_dirs[-1].stat().st_mode) == 0o700
    yield instance
    instance.stop()
    assert not directory.exists()
    assert not any(path.exists() or path.parent.exists() for path in data_dirs)
    assert not [process for process in processes if process.is_running() and process.status() != psutil.STATUS_ZOMBIE]
    assert [path.read_text().split()[0] for path in logs.glob("broker_*.log")] == ["BrokerConfiguration"] * 2


def test_it_is_a_broker_group_on_the_loopback_interface_and_its_facts_describe_it(killable: RunningInstance) -> None:
    facts = killable.facts
    assert (facts["kind"], facts["settings"]["brokers"]) == ("mlmq", 2)
    assert "PostgreSQL of " in facts["origin"]
    assert {"mlmq", "management", "mlmq-2", "management-2"} == set(facts["ports"])
    plan = json.loads(facts["configuration"]["mlmq.json"])
    assert [broker["workers"] for broker in plan["brokers"]] == [3, 3]
    listening = [
        one for process in family(killable) for one in process.net_connections("inet") if one.status == "LISTEN"
    ]
    assert {one.laddr.ip for one in listening} == {"127.0.0.1"}
    assert {one.laddr.port for one in listening} == set(facts["ports"].values())
    # All processes, the database too, descend from the process that inspectors watch.
    assert any("postgres" in process.name() for process in family(killable))


def test_stored_messages_survive_a_stop_and_a_crash_and_one_broker_the_other(killable: RunningInstance) -> None:
    first, second = brokers_of(killable.url)
    with Client("survivor", [first, second], timeout_s=TIMEOUT_S) as client:
        client.register()
        queue = client.create_queue("crash").queue
        client.send_message(queue, b"still here")
    killable.end()
    killable.restart(on_fork=die_with_parent())
    killable.crash()
    with pytest.raises(PeerError):
        pass_a_message(killable.url, 1.0)
    killable.restart(on_fork=die_with_parent())
    group = Group(address="queue://elsewhere", protocol="mlmq")
    receiver = MlmqReceiver(f"mlmq://{second}", group)
    until(lambda: list(receiver.pump()) == [] and receiver.ready)
    receiver.begin()
    broker_on(killable, second).kill()
    until(lambda: list(receiver.pump()) == [] and receiver.closed is not None)
    assert "clos" in str(receiver.closed) or "broke" in str(receiver.closed)
    receiver.close()
    with Client("survivor", [second, first], timeout_s=TIMEOUT_S) as client:
        client.register()
        message = client.dequeue_message(Query(queue=queue), wait_s=TIMEOUT_S / 2)
        assert message is not None
        assert message.content == b"still here"
    assert psutil.pid_exists(killable.pid)


async def change_password(url: str, password: str) -> None:
    connection = await asyncpg.connect(url)
    quoted = password.replace("'", "''")
    await connection.execute(f"ALTER ROLE CURRENT_USER PASSWORD '{quoted}'")
    await connection.close()


def test_a_given_database_is_used_and_left_alone_and_its_password_is_not_exposed(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    server = postgres.start(max_connections=20, on_fork=die_with_parent())
    try:
        parts = urlsplit(server.url())
        database = f"postgresql://{parts.username}@{parts.path}?{parts.query}"
        asyncio.run(change_password(server.url(), AWKWARD_PASSWORD))
        settings = {"database": database, "password": AWKWARD_PASSWORD}
        directory = tmp_path_factory.mktemp("own") / "instance"
        with pytest.raises(ConfigError) as error:
            start(
                MLMQ_SYSTEM, {**settings, "password": PASSWORD}, directory=directory, on_fork=die_with_parent()
            )  # fmt: skip
        assert "check the user and the password" in str(error.value)
        assert PASSWORD not in str(error.value)
        instance = start(
            MLMQ_SYSTEM, settings, directory=directory, on_fork=die_with_parent(), keep_logs=directory.parent / "logs"
        )
        try:
            pass_a_message(instance.url, TIMEOUT_S)
            assert PASSWORD_MARK not in json.dumps(instance.facts)
            assert all(PASSWORD_MARK not in " ".join(process.cmdline()) for process in family(instance))
            assert not any("postgres" in process.name() for process in family(instance))
        finally:
            instance.stop()
        assert PASSWORD_MARK not in (directory.parent / "logs" / "mlmq.log").read_text()
        assert server.is_alive
    finally:
        server.stop()


def test_a_plan_is_pure_and_names_every_broker() -> None:
    settings = settings_of(MLMQ_SYSTEM, {"brokers": 2, "batch": 1, "poll": "50ms"})
    installation = MLMQ_SYSTEM.find(None, None)
    plans = [MLMQ_SYSTEM.plan(settings, installation, Path("/somewhere"), PORTS) for _ in range(2)]
    assert plans[0] == plans[1]
    assert plans[0].endpoints == {
        "mlmq": "mlmq://127.0.0.1:7001?brokers=127.0.0.1:7003",
        "management": "http://127.0.0.1:7002",
        "management-2": "http://127.0.0.1:7004",
    }
    brokers = json.loads(plans[0].files["mlmq.json"])["brokers"]
    assert [(one["listen"], one["http"], one["batch"], one["poll"]) for one in brokers] == [
        ("127.0.0.1:7001", "127.0.0.1:7002", 1, "50ms"),
        ("127.0.0.1:7003", "127.0.0.1:7004", 1, "50ms"),
    ]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"brokers": 0}, "brokers"),
        ({"workers": 0}, "workers"),
        ({"threads": 2}, "write workers"),
        ({"persistence": False}, "stores every message"),
        ({"tls": True}, "not encrypted"),
        ({"user": "ada"}, "no users"),
        ({"queues": ["a"]}, "when they are first used"),
        ({"broker": 2}, "did you mean 'brokers'"),
        ({"password": "hush"}, "the embedded one has its own"),
        ({"database": "postgresql://ada:hush@localhost/x"}, "its password in `password`"),
        ({"database": "postgresql://ada@localhost/x?password=hush"}, "its password in `password`"),
        ({"database": "mysql://localhost/x"}, "postgresql://user@host:5432/name"),
        ({"database": "postgresql://localhost/x", "password": "hush"}, "the password is for a user"),
    ],
)
def test_a_setting_it_cannot_honour_is_refused_with_a_cure(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as error:
        settings_of(MLMQ_SYSTEM, given)
    assert str(error.value).startswith("system.settings")
    assert message in str(error.value)
    assert "hush" not in str(error.value)
