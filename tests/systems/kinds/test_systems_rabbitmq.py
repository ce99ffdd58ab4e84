"""Does RabbitMQ honour its settings, as third-party clients see it?"""

import os
import queue
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import httpx
import paho.mqtt.client as mqtt
import pika
import psutil
import pytest
from paho.mqtt.enums import CallbackAPIVersion
from proton import Message
from proton.utils import BlockingConnection

import stomp
from broker_traces import PASSWORD_MARK
from crescendo.processes.die_with_parent import die_with_parent
from crescendo.systems.instance import RunningInstance, start
from crescendo.systems.kinds.rabbitmq import RABBITMQ

pytestmark = pytest.mark.shares("rabbitmq")  # all in one worker: two RabbitMQ at a time are enough

ADDRESS = "127.0.0.9"
PASSWORD = f" ü#'\"%{{}}\\$@/{PASSWORD_MARK} word"


@pytest.fixture(scope="module")
def special(reachable_dir: Path) -> Iterator[RunningInstance]:
    """An instance with as many settings as possible changed from their defaults, besides the shared one."""
    settings = {
        "user": "ada lovelace",
        "password": PASSWORD,
        "protocols": ["amqp091"],
        "persistence": False,
        "memory": "300MB",
        "threads": 1,
        "queues": ["perf", "a/b c"],
        "listen": ADDRESS,
    }
    directory, logs = reachable_dir / "instance", reachable_dir / "logs"
    instance = start(RABBITMQ, settings, directory=directory, on_fork=die_with_parent(), keep_logs=logs)
    yield instance
    instance.stop()
    assert not directory.exists()
    assert PASSWORD_MARK not in "".join(path.read_text() for path in logs.iterdir())
    assert not any(_runs(process.pid) for process in instance.processes)


def pika_of(instance: RunningInstance) -> pika.BlockingConnection:
    parts = urlsplit(instance.endpoints["amqp091"])
    credentials = pika.PlainCredentials(unquote(parts.username or ""), unquote(parts.password or ""))
    return pika.BlockingConnection(pika.ConnectionParameters(parts.hostname, parts.port, credentials=credentials))


def get_json(instance: RunningInstance, path: str) -> Any:
    return httpx.get(instance.endpoints["management"] + path, timeout=10).raise_for_status().json()


def test_pika_passes_a_message(rabbitmq: RunningInstance) -> None:
    with pika_of(rabbitmq) as connection:
        channel = connection.channel()
        channel.queue_declare("systems-pika", auto_delete=True)
        channel.basic_publish("", "systems-pika", b"hello")
        delivered = next(channel.consume("systems-pika", inactivity_timeout=10, auto_ack=True))
        assert delivered[2] == b"hello"


def test_proton_passes_a_message(rabbitmq: RunningInstance) -> None:
    parts = urlsplit(rabbitmq.url)
    credentials = {"user": parts.username, "password": parts.password, "allow_insecure_mechs": True}
    connection = BlockingConnection(f"amqp://127.0.0.1:{parts.port}", timeout=10, **credentials)
    try:
        sender = connection.create_sender("systems-proton")
        receiver = connection.create_receiver("systems-proton")
        sender.send(Message("hello"))
        assert receiver.receive(10).body == "hello"
        receiver.accept()
    finally:
        connection.close()


def test_stomp_py_passes_a_message(rabbitmq: RunningInstance) -> None:
    received: queue.Queue[str] = queue.Queue()

    class Listener(stomp.ConnectionListener):  # type: ignore[misc]
        def on_message(self, frame: Any) -> None:
            received.put(frame.body)

    parts = urlsplit(rabbitmq.endpoints["stomp"])
    connection = stomp.Connection([("127.0.0.1", parts.port)])
    connection.set_listener("", Listener())
    connection.connect(parts.username, parts.password, wait=True)
    connection.subscribe("/topic/systems-stomp", id="1")
    connection.send("/topic/systems-stomp", "hello", receipt="sent")
    assert received.get(timeout=10) == "hello"
    connection.disconnect()


def test_paho_passes_a_message(rabbitmq: RunningInstance) -> None:
    received: queue.Queue[bytes] = queue.Queue()
    parts = urlsplit(rabbitmq.endpoints["mqtt"])
    client = mqtt.Client(CallbackAPIVersion.VERSION2)
    client.username_pw_set(parts.username, parts.password)
    client.on_connect = lambda *_: client.subscribe("systems/paho", 1)
    client.on_subscribe = lambda *_: client.publish("systems/paho", b"hello", 1)
    client.on_message = lambda _client, _userdata, message: received.put(message.payload)
    client.connect("127.0.0.1", parts.port)
    client.loop_start()
    assert received.get(timeout=10) == b"hello"
    client.disconnect()
    client.loop_stop()


def test_the_probe_leaves_no_queue_behind(rabbitmq: RunningInstance) -> None:
    assert "crescendo-proof" not in [found["name"] for found in get_json(rabbitmq, "/api/queues")]


def test_its_pid_is_the_erlang_vm_and_it_listens_at_its_address_and_nowhere_else(
    rabbitmq: RunningInstance, special: RunningInstance
) -> None:
    for instance, address in ((rabbitmq, "127.0.0.1"), (special, ADDRESS)):
        assert psutil.Process(instance.pid).name() == "beam.smp"
        listening: dict[int, set[str]] = {}
        for process in instance.processes:
            processes = [psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)]
            for connection in [found for member in processes for found in member.net_connections()]:
                if connection.status == psutil.CONN_LISTEN:
                    listening.setdefault(connection.laddr.port, set()).add(connection.laddr.ip)
        ports = instance.facts["ports"]
        own = {ports["epmd"], ports["distribution"]}  # of nodes among themselves
        assert all(listening.pop(port) <= {"127.0.0.1", "::1"} for port in own)
        names = ("amqp091", "management") if instance is special else set(ports) - {"epmd", "distribution"}
        assert listening == {ports[name]: {address} for name in names}


def test_only_its_user_may_connect(special: RunningInstance) -> None:
    pika_of(special).close()
    for user, password in (("guest", "guest"), ("ada lovelace", PASSWORD.strip()), ("ada lovelace", "")):
        wrong = pika.PlainCredentials(user, password)
        port = special.facts["ports"]["amqp091"]
        with pytest.raises(pika.exceptions.AMQPConnectionError):
            pika.BlockingConnection(pika.ConnectionParameters(ADDRESS, port, credentials=wrong))


def test_its_queues_memory_and_threads_are_as_set(special: RunningInstance) -> None:
    queues = {found["name"]: found["durable"] for found in get_json(special, "/api/queues")}
    assert queues == {"perf": False, "a/b c": False}
    threads = [path.read_text() for path in Path(f"/proc/{special.pid}/task").glob("*/comm")]
    assert sum(re.fullmatch(r"1_scheduler|erts_sched_1", name.strip()) is not None for name in threads) == 1
    assert not any(re.fullmatch(r"2_scheduler|erts_sched_2", name.strip()) for name in threads)
    deadline_s = time.monotonic() + 20  # the node reports about itself every five seconds
    while "mem_limit" not in (node := get_json(special, "/api/nodes")[0]) and time.monotonic() < deadline_s:
        time.sleep(0.2)
    assert node["mem_limit"] == 300_000_000
    assert set(special.endpoints) == {"amqp091", "management"}
    assert special.url == special.endpoints["amqp091"]


def test_its_facts_describe_what_was_started_without_secrets(special: RunningInstance) -> None:
    facts = special.facts
    assert facts["version"] == get_json(special, "/api/overview")["rabbitmq_version"]
    assert facts["origin"].startswith("package rabbitmq-server ")
    assert facts["settings"]["memory"] == "300000000"
    assert "password" not in facts["settings"]
    assert PASSWORD_MARK not in str(facts)
    started = [psutil.Process(process.pid) for process in special.processes]
    every = [*started, *(child for process in started for child in process.children(recursive=True))]
    assert PASSWORD_MARK not in " ".join(part for process in every for part in process.cmdline())
    assert {process.uids().real for process in every} == {facts["uid"]}
    assert facts["uid"] != 0


LAB = """
import sys, time
from pathlib import Path
from crescendo.processes.die_with_parent import die_with_parent
from crescendo.systems.instance import start
from crescendo.systems.kinds.rabbitmq import RABBITMQ
instance = start(RABBITMQ, {"protocols": ["amqp091"]}, directory=Path(sys.argv[1]), on_fork=die_with_parent())
print(*[process.pid for process in instance.processes], flush=True)
time.sleep(600)
"""


def test_it_dies_with_the_lab_that_started_it(tmp_path: Path) -> None:
    lab = subprocess.Popen([sys.executable, "-c", LAB, str(tmp_path / "it")], stdout=subprocess.PIPE, text=True)
    with lab:
        pids = [int(pid) for pid in lab.stdout.readline().split()] if lab.stdout else []
        descendants = [child for pid in pids for child in psutil.Process(pid).children(recursive=True)]
        os.kill(lab.pid, signal.SIGKILL)
    assert len(pids) == 2
    deadline_s = time.monotonic() + 10
    while any(_runs(pid) for pid in [*pids, *(child.pid for child in descendants)]):
        assert time.monotonic() < deadline_s, "a process of it is still running"
        time.sleep(0.05)


def _runs(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
