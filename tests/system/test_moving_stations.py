"""A sender that moves between access points: what its receivers see in four protocols, counted from the recording."""

import json
import os
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow.parquet as pq
import pytest

import crescendo
from crescendo.model.errors import ConfigError
from crescendo.record.manifest import Manifest, read_manifest
from lab_hosts import needs_namespaces, processes_in_network
from whole_runs import Launcher

pytestmark = needs_namespaces
PROTOCOLS = ("amqp10", "amqp091", "stomp", "mqtt")
RATE = 50
MEASURE_S = 8
MOVE_S = 1.0
FAR_S = 5
PROGRAMS = {"conductor": "", "switch": "crescendo.lab.switch_program", "host": "host_guardian.py"}


def words(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []


def network_of(pid: int) -> str:
    """The network that a process is in; empty if it has ended."""
    try:
        return os.readlink(f"/proc/{pid}/ns/net")
    except OSError:
        return ""


class MovedRun:
    """A finished run, and its rows."""

    def __init__(self, run_dir: Path) -> None:
        self.run_dir = run_dir
        self.manifest: Manifest = read_manifest(run_dir)
        self.groups = {c.group: c.id for c in self.manifest.connections if c.role == "receiver"}

    def rows(self, table: str) -> dict[str, Any]:
        parts = [pq.read_table(self.run_dir / part.path) for part in self.manifest.files if part.table == table]
        return {name: np.concatenate([np.asarray(part[name]) for part in parts]) for name in parts[0].column_names}

    def events(self, *kinds: str) -> list[tuple[int, str, dict[str, Any]]]:
        found = self.rows("events")
        rows = zip(found["t_ns"], found["kind"], found["detail"], strict=True)
        return [(int(t_ns), kind, json.loads(detail)) for t_ns, kind, detail in rows if kind in kinds]

    def received(self, group: str) -> tuple[Any, Any, Any]:
        """Sequence numbers, intended and arrival times at the receiver of a group, in order of arrival."""
        rows = self.rows("received")
        mine = rows["receiver"] == self.groups[group]
        order = np.argsort(rows["arrival"][mine])
        return tuple(rows[name][mine][order] for name in ("seq", "intended_ns", "received_ns"))  # type: ignore[return-value]


def _address(protocol: str) -> str:
    """RabbitMQ's MQTT has no shared subscriptions, so no queues."""
    return f"{'topic' if protocol == 'mqtt' else 'queue'}://moving-{protocol}-{{run}}"


def experiment() -> str:
    groups = [
        {"name": name, "address": [_address(name)], "protocol": name, "rate": RATE, "size": 512} for name in PROTOCOLS
    ]
    document = {
        "name": "moving",
        "system": {"kind": "rabbitmq"},
        "workload": groups,
        "phases": {"warmup": "0s", "measure": f"{MEASURE_S}s", "drain": "5s"},
        "lab": {
            "system": "server",
            "hosts": {"server": {}, "station": {"access_point": "home", "rate": "20Mbit"}},
            "access_points": {"home": {}, "work": {}, "street": {"network": 1}},
        },
        "peers": {"senders": [{"on": "station"}]},
        "faults": [
            {"at": at, "do": "handoff", "on": "station", "with": {"to": to, "delay": f"{MOVE_S:g}s"}}
            for at, to in (("1s", "work"), (f"{FAR_S}s", "street"))
        ],
    }
    return json.dumps(document)  # JSON is YAML


@pytest.fixture(scope="module")
def moved(tmp_path_factory: pytest.TempPathFactory) -> MovedRun:
    """A station that moves to an access point of its network, and later to one of another."""
    directory = tmp_path_factory.mktemp("moved")
    path = directory / "moving.yml"
    path.write_text(experiment())
    result = crescendo.run(path, out=directory, analyze=False)
    assert result.state == "sealed", result.reason
    return MovedRun(result.run_dir)


@pytest.mark.parametrize("group", PROTOCOLS)
def test_a_handoff_in_one_network_loses_nothing_and_delays_everything(moved: MovedRun, group: str) -> None:
    seqs, intended_ns, arrived_ns = moved.received(group)
    (left_ns, _, _), (joined_ns, _, _), (far_ns, _, _), _ = moved.events("fault", "cure")
    near = intended_ns < far_ns - 10**9
    seqs, intended_ns, arrived_ns = seqs[near], intended_ns[near], arrived_ns[near]
    assert len(seqs) > RATE
    assert seqs.tolist() == list(range(len(seqs)))  # none lost, none twice, all in order
    assert all(t_ns > far_ns for t_ns, _, _ in moved.events("disconnect", "reconnect"))
    assert (joined_ns - left_ns) / 1e9 >= MOVE_S
    jitter_s = (np.diff(arrived_ns) - np.diff(intended_ns)) / 1e9
    peak = int(np.argmax(jitter_s))
    # TCP tries again at growing intervals, so it may find the new access point up to a doubled interval later.
    assert MOVE_S - 0.1 <= jitter_s[peak] <= 4
    assert left_ns <= arrived_ns[peak + 1]
    # About peak ÷ period messages were held, and arrive together: their jitter is negative.
    held = jitter_s[peak + 1 :][: int(0.9 * jitter_s[peak] * RATE)]
    assert np.mean(held < -0.5 / RATE) > 0.8


@pytest.mark.parametrize("group", PROTOCOLS)
def test_a_handoff_to_another_network_reconnects_and_every_message_is_accounted_for(
    moved: MovedRun, group: str
) -> None:
    seqs, _, _ = moved.received(group)
    sent = moved.rows("sent")
    (sender,) = [c.id for c in moved.manifest.connections if c.role == "sender" and c.group == group]
    attempts = sent["attempt"][sent["sender"] == sender]
    assert set(seqs.tolist()) == set(range(RATE * MEASURE_S))  # acknowledged or sent again
    repeated = len(seqs) - len(set(seqs.tolist()))
    assert repeated <= int(np.count_nonzero(attempts > 1))  # only what was sent again can arrive twice
    assert len(moved.events("disconnect")) == len(PROTOCOLS)
    assert len(moved.events("reconnect")) >= len(PROTOCOLS)


def test_the_manifest_tells_hosts_and_what_their_network_carried(moved: MovedRun) -> None:
    hosts = moved.manifest.lab["hosts"]
    networks = {name: facts["address"].rpartition(".")[0] for name, facts in hosts.items()}
    assert networks["station"] != networks["server"], "where it was at the end"
    # A token bucket of 20 Mbit/s, of which TCP payload is a part; the veth pair under it carries gigabits.
    assert 5e6 < hosts["station"]["baseline"]["up_bps"] < 30e6


def test_nothing_of_a_lab_is_left_after_its_run(moved: MovedRun) -> None:
    ours = f"{os.getpid()} "
    left = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            environment = (process / "environ").read_bytes()
        except OSError:
            continue
        if f"CRESCENDO_LAB_OWNER={ours}".encode() in environment:
            left.append(process.name)
    assert not left


def test_a_lab_whose_process_is_killed_leaves_nothing_and_never_succeeds(tmp_path: Path, launch: Launcher) -> None:
    """Three runs at the same time, each of which loses another process."""
    document = json.loads(experiment()) | {
        "system": {"kind": "loopback"},
        "workload": {"rate": RATE, "address": "queue://moving"},
        "phases": {"warmup": "0s", "measure": "3s", "drain": "500ms"},
        "faults": [],
    }
    document["lab"]["baseline"] = False
    path = tmp_path / "killed.yml"
    path.write_text(json.dumps(document))

    def left_by(victim: str) -> tuple[str, list[list[str]], list[str]]:
        """What the run says, and which of its processes and networks are left."""
        session = Launcher(tmp_path / victim).without_analysis(path)
        launch.sessions.append(session)
        session.wait_for_start()
        family = session.family()
        networks = {network_of(one.pid) for one in family} - {"", network_of(os.getpid())}
        assert len(networks) == 3, "of the switch, and of two hosts"
        named = [one.pid for one in family if any(PROGRAMS[victim] in word for word in words(one))]
        os.kill(named[0] if PROGRAMS[victim] else session.process.pid, signal.SIGKILL)
        ended = session.finish()
        _, alive = psutil.wait_procs(family, 30)
        return ended.stdout.strip(), [words(one) for one in alive], list(filter(processes_in_network, networks))

    with ThreadPoolExecutor(len(PROGRAMS)) as pool:
        found = dict(zip(PROGRAMS, pool.map(left_by, PROGRAMS), strict=True))
    # A network is gone with its last process, and with it interfaces, routes and queues.
    assert found == {"conductor": ("", [], []), "switch": ("incomplete", [], []), "host": ("incomplete", [], [])}


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"system": {"kind": "mlmq"}}, "mlmq listens on the loopback interface only"),
        ({"peers": {"senders": [{"on": "statoin"}]}}, "'statoin' is not a host of the lab"),
        ({"faults": [{"at": "1s", "do": "handoff", "on": "server", "with": {"to": "work"}}]}, "server has a cable"),
        ({"faults": [{"at": "1s", "do": "handoff", "on": "station", "with": {"to": "wrok"}}]}, "not an access point"),
        ({"faults": [{"at": "1s", "do": "kill"}]}, "cut, impair and handoff"),
        ({"lab": {"system": "station", "hosts": {"station": {"access_point": "a"}}, "access_points": {"a": {}}}},
         "give it a cable"),
        ({"lab": None}, "only standing peers"),
    ],
)  # fmt: skip
def test_mistakes_are_one_sentence_before_anything_starts(
    tmp_path: Path, change: dict[str, Any], complaint: str
) -> None:
    document = json.loads(experiment()) | change
    if change.get("system", {}).get("kind") == "mlmq":
        document["workload"] = document["workload"][:1]
    if document["lab"] is None:
        document["faults"] = []
    path = tmp_path / "wrong.yml"
    path.write_text(json.dumps(document))
    with pytest.raises(ConfigError, match=complaint) as refused:
        crescendo.run(path, out=tmp_path, analyze=False)
    assert "\n" not in str(refused.value)
