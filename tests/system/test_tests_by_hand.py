"""Tests by hand on standing peers: SET, START, DRAIN, STOP, from a client that shares no code with ours.

Control broker and system under test are the same Mosquitto; what was really sent is counted by another subscriber.
"""

import json
import os
import pty
import select
import subprocess
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import paho.mqtt.client as mqtt
import pytest
from paho.mqtt.enums import CallbackAPIVersion

from crescendo.cli.control import control
from crescendo.model.errors import ConfigError
from crescendo.processes.die_with_parent import die_with_parent
from crescendo.run import lab_view
from crescendo.systems.instance import RunningInstance, start
from crescendo.systems.kinds.mosquitto import MOSQUITTO
from plain_control_client import OK, PlainClient, lab_name
from whole_runs import CRESCENDO, Launcher, launching

TOKEN = "b7ha4d" * 8
START_RECEIVER, STOP_RECEIVER, START_SENDER, STOP_SENDER, START_INSPECTOR, STOP_INSPECTOR = range(6)
SET, GET, LOG, DRAIN, ROLE_UNASSIGN = 7, 17, 40, 41, 61
PROTOCOL_ERROR, NOTIFY_FAIL, NOTIFY_SUCCESS, DRAIN_COMPLETE, TEST_STARTED = 12, 15, 16, 42, 70
BROKER, DURATION, LOG_LEVEL, PARALLEL_COUNT, MESSAGE_SIZE, THROTTLE, RATE, FCL, MANAGEMENT_INTERFACE = range(9)
PEERS = ("sender-a", "receiver-a", "inspector-a")


class HandLab:
    """Three standing peers, and a plain client of their lab."""

    def __init__(self, directory: Path, url: str, launch: Launcher) -> None:
        self.url, self.data = url, directory / "data"
        files = {"control.url": url, "lab.token": TOKEN}
        for name, text in files.items():
            (directory / name).write_text(text + "\n")
            (directory / name).chmod(0o600)
        self.url_file, self.token_file = directory / "control.url", directory / "lab.token"
        self.access = ["--control-file", str(self.url_file), "--token-file", str(self.token_file)]
        for name in PEERS:
            launch("peer", name.partition("-")[0], "--id", name, "--data", str(self.data / name), *self.access)
        self.client = PlainClient(url, TOKEN, lab_name(TOKEN))
        self.sessions = self.client.sessions(set(PEERS))

    def ask(self, peer: str, command: int, payload: dict[Any, Any] | None = None) -> tuple[int, Any]:
        return self.client.ask(peer, self.sessions[peer], command, payload)

    def set(self, peer: str, options: dict[Any, Any]) -> None:
        assert self.ask(peer, SET, {"options": options}) == (OK, {})


@pytest.fixture(scope="module")
def lab(mosquitto: RunningInstance, tmp_path_factory: pytest.TempPathFactory) -> Iterator[HandLab]:
    directory = tmp_path_factory.mktemp("by-hand")
    with launching(directory) as launch:
        lab = HandLab(directory, mosquitto.url, launch)
        yield lab
        lab.client.close()


@pytest.fixture
def run(mosquitto: RunningInstance) -> Iterator[PlainClient]:
    """A test of its own, whose notifications are heard."""
    client = PlainClient(mosquitto.url, TOKEN, uuid.uuid4().hex[:16])
    yield client
    client.close()


class Witness:
    """Counts the messages of a topic, without our code."""

    def __init__(self, url: str, topic: str) -> None:
        parts = urlsplit(url)
        self.sizes: list[int] = []
        subscribed = threading.Event()
        self.client = mqtt.Client(CallbackAPIVersion.VERSION2)
        self.client.username_pw_set(parts.username or "", parts.password or "")
        self.client.on_message = lambda _client, _data, message: self.sizes.append(len(message.payload))
        self.client.on_subscribe = lambda *_: subscribed.set()
        self.client.connect(parts.hostname or "", parts.port or 1883)
        self.client.loop_start()
        self.client.subscribe(topic, 1)
        assert subscribed.wait(30)

    def count(self, wanted: int) -> list[int]:
        deadline = time.monotonic() + 30
        while len(self.sizes) < wanted and time.monotonic() < deadline:
            time.sleep(0.01)
        return self.sizes

    def close(self) -> None:
        self.client.disconnect()
        self.client.loop_stop()


def test_options_start_drain_and_stop_make_a_load_test(lab: HandLab, run: PlainClient) -> None:
    topic = f"by-hand-{run.scope}"
    address = f"{lab.url}/topic/{topic}?qos=1"
    witness = Witness(lab.url, topic)
    lab.set("receiver-a", {BROKER: address, PARALLEL_COUNT: 1})
    lab.set("sender-a", {BROKER: address, DURATION: 1, PARALLEL_COUNT: 2, MESSAGE_SIZE: 300, RATE: 100})
    _, about = lab.ask("sender-a", GET)
    assert (about["options"]["duration"], about["options"]["message_size"]) == (1.0, 300)
    assert lab.ask("receiver-a", START_RECEIVER, {"run": run.scope})[0] == OK
    run.notification(TEST_STARTED, "receiver-a")
    assert lab.ask("sender-a", START_SENDER, {"run": run.scope})[0] == OK
    sent = run.notification(NOTIFY_SUCCESS, "sender-a")[7]
    assert sent["messages"] == 2 * 100 * 1
    assert witness.count(200) == [300] * 200
    witness.close()
    command, refusal = lab.ask("sender-a", START_SENDER, {"run": uuid.uuid4().hex[:16]})
    assert (command, f"busy with run {run.scope}" in refusal["reason"]) == (PROTOCOL_ERROR, True)
    assert lab.ask("receiver-a", DRAIN)[0] == OK
    assert run.notification(DRAIN_COMPLETE, "receiver-a")[7]["messages"] == 200
    assert run.notification(NOTIFY_SUCCESS, "receiver-a")[7]["messages"] == 200
    for peer, stop in (("receiver-a", STOP_RECEIVER), ("sender-a", STOP_SENDER)):
        command, statistics = lab.ask(peer, stop)
        assert (command, statistics["messages"]) == (OK, 200)
        _, left = lab.ask(peer, GET, {"run": run.scope})
        assert any(name.endswith(".parquet") for name, _ in left["files"])
        assert lab.ask(peer, ROLE_UNASSIGN, {"run": run.scope})[0] == OK
        assert list((lab.data / peer).iterdir()) == []
        command, refusal = lab.ask(peer, stop)
        assert (command, "no test by hand is running" in refusal["reason"]) == (PROTOCOL_ERROR, True)


def test_a_latency_above_its_limit_fails_and_a_throttle_changes_while_sending(lab: HandLab, run: PlainClient) -> None:
    address = f"{lab.url}/topic/by-hand-{run.scope}"
    lab.set("receiver-a", {"broker": address, "fcl": 1, "log_level": "debug"})
    lab.set("sender-a", {"broker": address, "duration": 600, "parallel_count": 2, "throttle": 20})
    assert lab.ask("receiver-a", START_RECEIVER, {"run": run.scope})[0] == OK
    run.notification(TEST_STARTED, "receiver-a")
    assert lab.ask("sender-a", START_SENDER, {"run": run.scope})[0] == OK
    failed = run.notification(NOTIFY_FAIL, "receiver-a")[7]
    assert "response_p90 was" in failed["failure"]["reason"]
    lab.set("sender-a", {"throttle": 400})
    # At 20 a second it would take 10 seconds: a rate that nobody but the change explains. After a pause of the sender a
    # report may cover an instant only, and show any rate.
    run.wait(
        lambda note: (
            note[1:3] == [2, 8] and note[6][0] == "sender-a" and note[7]["rate"] > 200 and note[7]["messages"] > 200
        )
    )
    command, statistics = lab.ask("sender-a", STOP_SENDER)
    assert (command, statistics["messages"] > 200) == (OK, True)
    assert lab.ask("receiver-a", STOP_RECEIVER)[0] == OK
    _, log = lab.ask("receiver-a", LOG)
    assert any(line.endswith("START_RECEIVER from by-hand") for line in log["lines"])


def test_an_inspector_is_started_by_hand_and_ends_by_itself(lab: HandLab, run: PlainClient) -> None:
    lab.set("inspector-a", {MANAGEMENT_INTERFACE: lab.url, DURATION: 0.5})
    command, refusal = lab.ask("inspector-a", START_INSPECTOR, {"run": run.scope})
    assert (command, "give kind" in refusal["reason"]) == (PROTOCOL_ERROR, True)
    assert lab.ask("inspector-a", START_INSPECTOR, {"run": run.scope, "kind": "mosquitto"})[0] == OK
    assert run.notification(NOTIFY_SUCCESS, "inspector-a")[7]["values"]["looks"] >= 1
    assert lab.ask("inspector-a", STOP_INSPECTOR)[0] == OK


@pytest.mark.parametrize(
    ("peer", "options", "reason"),
    [
        ("sender-a", {FCL: 1000}, "fcl has no effect on the sender role; it is for receivers"),
        ("receiver-a", {MESSAGE_SIZE: 10}, "message_size has no effect on the receiver role; it is for senders"),
        ("inspector-a", {"broker": "amqp://h/queue/q"}, "broker has no effect on the inspector role"),
        ("sender-a", {"log_level": "loud"}, "Invalid enum value 'loud'"),
        ("sender-a", {"colour": "red"}, "unknown field `colour`"),
        ("sender-a", {"rate": 1, "throttle": 2}, "give one of the two"),
        ("sender-a", {"broker": "amqps://h/queue/q?ca=/etc/passwd"}, "'/etc/passwd' is not among the files"),
    ],
)
def test_what_cannot_act_is_refused_and_changes_nothing(
    lab: HandLab, peer: str, options: dict[Any, Any], reason: str
) -> None:
    before = lab.ask(peer, GET)[1]["options"]
    command, refusal = lab.ask(peer, SET, {"options": options})
    assert (command, reason in refusal["reason"]) == (PROTOCOL_ERROR, True), refusal
    assert lab.ask(peer, GET)[1]["options"] == before


@pytest.fixture
def by_command(
    lab: HandLab, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., list[Any]]:
    """`crescendo control … --json`, in this process: what it printed. It waits less, and asks again instead."""
    monkeypatch.setattr(lab_view.LabView.refresh, "__defaults__", (0.1,))

    def ask(action: str, *arguments: str) -> list[Any]:
        assert control("-", action, list(arguments), lab.token_file, lab.url_file, as_json=True) == 0
        return [json.loads(line) for line in capsys.readouterr().out.splitlines()]

    return ask


def test_the_command_carries_out_a_test_by_hand(
    lab: HandLab, by_command: Callable[..., list[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    address = f"{lab.url}/topic/by-command-{uuid.uuid4().hex}"
    with monkeypatch.context() as hasty:
        hasty.setattr(lab_view, "DISCOVER_S", 0.0)  # standing peers are found without it
        assert by_command("set", "receiver-a", f"broker={address}", "fcl=60000000")[0]["answer"] == "OK"
        assert by_command("set", "sender-a", f"broker={address}", "duration=600", "rate=50")[0]["answer"] == "OK"
        began = by_command("start", "sender-a", "receiver-a")
        assert [(one["peer"], one["answer"]) for one in began] == [
            ("receiver-a", "NOTIFY_TEST_STARTED"),
            ("sender-a", "NOTIFY_TEST_STARTED"),
        ]
        test = began[0]["payload"]["run"]
        assert by_command("flush", "sender-a")[0]["answer"] == "OK"
        (log,) = by_command("log", "sender-a")
        assert any(line.endswith(f"began test {test}") for line in log["payload"]["lines"])
        assert by_command("set", "sender-a", "rate=100")[0]["answer"] == "OK"
    deadline = time.monotonic() + 60
    peers: list[Any] = []
    while not any(
        (one["id"], one["run"], one["state"]) == ("sender-a", test, "running")
        and (one["statistics"] or {}).get("counts")
        for one in peers
    ):
        assert time.monotonic() < deadline, peers
        (peers,) = by_command("peers")
    for one in peers:
        assert abs(one["clock_offset_ns"]) <= one["round_trip_ns"], "all of them have our own clock"
    monkeypatch.setattr(lab_view, "DISCOVER_S", 0.0)  # the standing peers name the run
    assert by_command("stats", f"{test}/sender-a")[0]["payload"]["counts"]
    with pytest.raises(ConfigError, match="is not a standing peer; a run starts its own peers"):
        by_command("start", f"{test}/sender-a")
    assert by_command("drain", "receiver-a")[0]["answer"] == "OK"
    stopped = by_command("stop", "sender-a", "receiver-a")
    assert [one["answer"] for one in stopped] == ["OK", "OK"]


def test_the_command_sends_the_certificates_that_a_url_names(
    lab: HandLab, by_command: Callable[..., list[Any]], monkeypatch: pytest.MonkeyPatch, reachable_dir: Path
) -> None:
    monkeypatch.setattr(lab_view, "DISCOVER_S", 0.0)
    settings = {"tls": {"client_certificates": "required"}}
    secure = start(MOSQUITTO, settings, directory=reachable_dir / "secure", on_fork=die_with_parent())
    try:
        system, _, files = secure.endpoints["mqtts"].partition("?")
        assert "key=" in files
        by_command("set", "sender-a", f"broker={system}/topic/secure?{files}", "duration=0.2", "rate=100")
        (began,) = by_command("start", "sender-a")
        assert began["answer"] == "NOTIFY_TEST_STARTED", "it has connected"
        assert by_command("stop", "sender-a")[0]["answer"] == "OK"
        shown = json.dumps(by_command("get", "sender-a"))
        assert "?ca=broker-0" in shown
        assert str(reachable_dir) not in shown, "no path of this machine has reached it"
    finally:
        secure.stop()


def test_a_misspelt_option_is_named_before_anybody_is_asked(lab: HandLab) -> None:
    with pytest.raises(ConfigError, match=r"unknown field `speed`.*known: broker, duration"):
        control("mqtt://127.0.0.1:1", "set", ["sender-a", "speed=1"], lab.token_file)


def test_the_live_view_shows_every_process_until_ctrl_c(lab: HandLab) -> None:
    ours, theirs = pty.openpty()
    viewing = subprocess.Popen(
        [CRESCENDO, "control", "-", *lab.access], stdin=theirs, stdout=theirs, stderr=theirs,
        env={**os.environ, "COLUMNS": "120", "TERM": "xterm"}, start_new_session=True,
    )  # fmt: skip
    os.close(theirs)
    shown = b""
    try:
        while not all(name.encode() in shown for name in PEERS):
            assert select.select([ours], [], [], 60)[0], shown
            shown += os.read(ours, 4096)
        viewing.send_signal(2)
        drained = threading.Thread(target=_drain, args=(ours,), daemon=True)
        drained.start()
        assert viewing.wait(60) == 0
    finally:
        viewing.kill()
        viewing.wait()
    assert b"Traceback" not in shown


def _drain(terminal: int) -> None:
    try:
        while os.read(terminal, 4096):
            pass
    except OSError:  # the other side is closed
        os.close(terminal)
