"""Does Mosquitto honour its settings, as a third-party client sees it?"""

import queue
import subprocess
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote, urlsplit

import paho.mqtt.client as mqtt
import psutil
import pytest
from paho.mqtt.enums import CallbackAPIVersion

from broker_traces import PASSWORD_MARK
from crescendo.processes.die_with_parent import die_with_parent
from crescendo.systems.instance import RunningInstance, start
from crescendo.systems.kinds.mosquitto import MOSQUITTO

PASSWORD = f" ü:#$ \\'\"%@/{PASSWORD_MARK} word "


@pytest.fixture(scope="module")
def special(reachable_dir: Path) -> Iterator[RunningInstance]:
    """An instance with as many settings as possible changed from their defaults."""
    settings = {"user": "ada", "password": PASSWORD, "persistence": False, "memory": "2MB"}
    directory, logs = reachable_dir / "a place with spaces", reachable_dir / "logs"
    instance = start(MOSQUITTO, settings, directory=directory, on_fork=die_with_parent(), keep_logs=logs)
    yield instance
    instance.stop()
    assert not directory.exists()
    assert PASSWORD_MARK not in (logs / "mosquitto.log").read_text()


def test_it_does_not_run_as_root_and_shows_no_secret(special: RunningInstance) -> None:
    assert psutil.Process(special.pid).uids().real == special.facts["uid"] != 0
    assert PASSWORD_MARK not in str(special.facts) + " ".join(psutil.Process(special.pid).cmdline())


def first_answer(instance: RunningInstance, topic: str, *, user: str, password: str) -> str:
    """Subscribe, publish unless it is a $SYS topic, and return the first payload, or the reason of a refusal."""
    answers: queue.Queue[str] = queue.Queue()
    client = mqtt.Client(CallbackAPIVersion.VERSION2)
    if user:
        client.username_pw_set(user, password)

    def connected(_client: mqtt.Client, _userdata: object, _flags: object, reason: object, _properties: object) -> None:
        if str(reason) != "Success":
            answers.put(str(reason))
        client.subscribe(topic, 1)

    client.on_connect = connected
    client.on_subscribe = lambda *_: None if topic.startswith("$") else client.publish(topic, b"hello", 1)
    client.on_message = lambda _client, _userdata, message: answers.put(message.payload.decode())
    client.connect("127.0.0.1", urlsplit(instance.url).port or 0)
    client.loop_start()
    try:
        return answers.get(timeout=10)
    finally:
        client.disconnect()
        client.loop_stop()


def test_only_its_user_may_connect_and_pass_a_message(special: RunningInstance) -> None:
    assert unquote(urlsplit(special.url).password or "") == PASSWORD
    assert first_answer(special, "news", user="ada", password=PASSWORD) == "hello"
    for user, password in (("ada", PASSWORD.strip()), ("bob", PASSWORD), ("", "")):
        assert first_answer(special, "news", user=user, password=password) == "Not authorized"


def test_a_generated_password_works_too(mosquitto: RunningInstance) -> None:
    parts = urlsplit(mosquitto.url)
    assert first_answer(mosquitto, "systems/news", user=parts.username or "", password=parts.password or "") == "hello"


def test_it_listens_on_loopback_only_and_publishes_its_statistics(special: RunningInstance) -> None:
    listening = [found.laddr for found in psutil.Process(special.pid).net_connections() if found.status == "LISTEN"]
    assert [(address.ip, address.port) for address in listening] == [("127.0.0.1", special.facts["ports"]["mqtt"])]
    version = subprocess.run(["mosquitto", "-h"], capture_output=True, text=True, check=False).stdout.split()[2]
    assert first_answer(special, "$SYS/broker/version", user="ada", password=PASSWORD) == f"mosquitto version {version}"
    assert special.facts["version"] == version


@pytest.mark.parametrize("persistence", [True, False])
def test_persistence_decides_whether_it_writes_its_messages_to_disk(tmp_path: Path, persistence: bool) -> None:
    settings = {"persistence": persistence, "password": "word"}
    instance = start(MOSQUITTO, settings, directory=tmp_path / "it", on_fork=die_with_parent())
    try:
        psutil.Process(instance.pid).terminate()  # it writes on exit
        psutil.Process(instance.pid).wait(10)
        assert bool(list((tmp_path / "it" / "data").iterdir())) == persistence
    finally:
        instance.stop()


def test_a_memory_limit_is_enforced(special: RunningInstance) -> None:
    """A retained message beyond its limit: it disconnects the client instead of growing."""
    client = mqtt.Client(CallbackAPIVersion.VERSION2)
    client.username_pw_set("ada", PASSWORD)
    answers: queue.Queue[str] = queue.Queue()
    client.on_connect = lambda *_: client.publish("big", bytes(4_000_000), 1, retain=True)
    client.on_publish = lambda *_: answers.put("kept")
    client.on_disconnect = lambda *_: answers.put("disconnected")
    client.connect("127.0.0.1", special.facts["ports"]["mqtt"])
    client.loop_start()
    assert answers.get(timeout=10) == "disconnected"
    client.disconnect()
    client.loop_stop()
