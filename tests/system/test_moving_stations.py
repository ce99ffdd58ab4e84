"""A sender that moves between access points: what its receivers see in four protocols, counted from the recording."""

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

import crescendo
from crescendo.model.errors import ConfigError
from crescendo.record.manifest import Manifest, read_manifest
from lab_hosts import needs_namespaces

pytestmark = needs_namespaces
PROTOCOLS = ("amqp10", "amqp091", "stomp", "mqtt")
RATE = 50
MEASURE_S = 7
MOVE_S = 1.0


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


def experiment(to: str, *, failover: bool) -> str:
    groups = [
        {
            "name": name,
            "address": [_address(name)] if failover else _address(name),
            "protocol": name,
            "rate": RATE,
            "size": 512,
        }
        for name in PROTOCOLS
    ]
    document = {
        "name": f"to-{to}",
        "system": {"kind": "rabbitmq"},
        "workload": groups,
        "phases": {"warmup": "0s", "measure": f"{MEASURE_S}s", "drain": "5s"},
        "lab": {
            "system": "server",
            "hosts": {"server": {}, "station": {"access_point": "home", "rate": "20Mbit"}},
            "access_points": {"home": {}, "work": {}, "street": {"network": 1}},
        },
        "peers": {"senders": [{"on": "station"}]},
        "faults": [{"at": "1500ms", "do": "handoff", "on": "station", "with": {"to": to, "delay": f"{MOVE_S:g}s"}}],
    }
    return json.dumps(document)  # JSON is YAML


def moved_run(directory: Path, to: str, *, failover: bool) -> MovedRun:
    path = directory / f"{to}.yml"
    path.write_text(experiment(to, failover=failover))
    result = crescendo.run(path, out=directory, analyze=False)
    assert result.state == "sealed", result.reason
    return MovedRun(result.run_dir)


@pytest.fixture(scope="module")
def same_network(tmp_path_factory: pytest.TempPathFactory) -> MovedRun:
    return moved_run(tmp_path_factory.mktemp("same"), "work", failover=False)


@pytest.fixture(scope="module")
def other_network(tmp_path_factory: pytest.TempPathFactory) -> MovedRun:
    return moved_run(tmp_path_factory.mktemp("other"), "street", failover=True)


@pytest.mark.parametrize("group", PROTOCOLS)
def test_a_handoff_in_one_network_loses_nothing_and_delays_everything(same_network: MovedRun, group: str) -> None:
    seqs, intended_ns, arrived_ns = same_network.received(group)
    assert seqs.tolist() == list(range(RATE * MEASURE_S))  # none lost, none twice, all in order
    assert not same_network.events("disconnect", "reconnect")
    (left_ns, _, _), (joined_ns, _, _) = same_network.events("fault", "cure")
    assert (joined_ns - left_ns) / 1e9 >= MOVE_S
    jitter_s = (np.diff(arrived_ns) - np.diff(intended_ns)) / 1e9
    peak = int(np.argmax(jitter_s))
    # TCP tries again at growing intervals, so it may find the new access point up to a doubled interval later.
    assert MOVE_S - 0.1 <= jitter_s[peak] <= 4
    assert left_ns <= arrived_ns[peak + 1]
    # About peak ÷ period messages were held, and arrive together: their jitter is negative.
    held = jitter_s[peak + 1 :][: int(0.9 * jitter_s[peak] * RATE)]
    assert np.mean(held < -0.5 / RATE) > 0.8


@pytest.mark.soak  # a run of its own: the suite has the handoff inside one network
@pytest.mark.parametrize("group", PROTOCOLS)
def test_a_handoff_to_another_network_reconnects_and_every_message_is_accounted_for(
    other_network: MovedRun, group: str
) -> None:
    seqs, _, _ = other_network.received(group)
    sent = other_network.rows("sent")
    (sender,) = [c.id for c in other_network.manifest.connections if c.role == "sender" and c.group == group]
    attempts = sent["attempt"][sent["sender"] == sender]
    assert set(seqs.tolist()) == set(range(RATE * MEASURE_S))  # acknowledged or sent again
    repeated = len(seqs) - len(set(seqs.tolist()))
    assert repeated <= int(np.count_nonzero(attempts > 1))  # only what was sent again can arrive twice
    lost = [detail for _, kind, detail in other_network.events("disconnect") if kind == "disconnect"]
    assert len(lost) == len(PROTOCOLS)
    assert len(other_network.events("reconnect")) >= len(PROTOCOLS)


def test_the_manifest_tells_hosts_and_what_their_network_carried(
    same_network: MovedRun, other_network: MovedRun
) -> None:
    before, after = (run.manifest.lab["hosts"] for run in (same_network, other_network))
    assert before["station"]["address"] != after["station"]["address"]
    assert before["server"]["address"] == after["server"]["address"]
    # A token bucket of 20 Mbit/s: TCP payload is at most that, and a bucket of 32 KiB more in a quarter of a second.
    assert 10e6 < before["station"]["baseline"]["up_bps"] < 22e6


def test_nothing_of_a_lab_is_left_after_its_run(same_network: MovedRun) -> None:
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


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"system": {"kind": "artemis"}}, "artemis listens on the loopback interface only"),
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
    document = json.loads(experiment("work", failover=False)) | change
    if change.get("system", {}).get("kind") == "artemis":
        document["workload"] = document["workload"][:1]
    if document["lab"] is None:
        document["faults"] = []
    path = tmp_path / "wrong.yml"
    path.write_text(json.dumps(document))
    with pytest.raises(ConfigError, match=complaint) as refused:
        crescendo.run(path, out=tmp_path, analyze=False)
    assert "\n" not in str(refused.value)
