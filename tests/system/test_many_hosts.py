"""A run on six hosts, two of them with clocks of their own: it passes, and its latencies are right."""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from crescendo.lab.host_network import HostNetwork, LabHost
from crescendo.pipeline.job import analyze
from crescendo.record.manifest import clock_bound_ns, read_manifest
from crescendo.record.reader import open_recording
from lab_hosts import needs_namespaces
from whole_runs import CRESCENDO, write_experiment

pytestmark = needs_namespaces
RUN = str(Path(__file__).with_name("lab_run.py"))
SHIFTS_S = {"sender-b": 3600, "receiver-a": 86_400}
PEERS = ("sender-a", "sender-b", "receiver-a")


class ManyHosts:
    """Conductor, control broker, system, two senders and a receiver, each on a host of its own."""

    def __init__(self, network: HostNetwork, directory: Path) -> None:
        self.network, self.directory = network, directory
        for name in ("conductor", "broker", "system", *PEERS):
            network.add(name, clock_shift_s=SHIFTS_S.get(name, 0))
        hosts = network.hosts
        (directory / "mosquitto.conf").write_text(
            f"listener 1883 {hosts['broker'].address}\nallow_anonymous true\nuser root\npersistence false\n"
        )
        hosts["broker"].launch(["mosquitto", "-c", str(directory / "mosquitto.conf")], log=directory / "mosquitto.log")
        relay = [sys.executable, "-m", "crescendo.systems.relay", "--host", hosts["system"].address, "--port", "5672"]
        hosts["system"].launch(relay, log=directory / "relay.log")
        for file, text in (("control.url", f"mqtt://{hosts['broker'].address}:1883"), ("lab.token", "70ce" * 12)):
            (directory / file).write_text(text + "\n")
            (directory / file).chmod(0o600)
        self._await_listeners({"broker": 1883, "system": 5672})
        logs = [self._stand(hosts[name]) for name in PEERS]
        deadline = time.monotonic() + 90
        while not all("waits for runs" in log.read_text() for log in logs):
            assert time.monotonic() < deadline, [log.read_text() for log in logs]
            time.sleep(0.05)

    def _await_listeners(self, ports: dict[str, int]) -> None:
        dial = (
            "import socket, sys, time\n"
            "deadline = time.monotonic() + 60\n"
            "while True:\n"
            "    try:\n"
            "        socket.create_connection((sys.argv[1], int(sys.argv[2])), 5).close(); break\n"
            "    except OSError:\n"
            "        if time.monotonic() > deadline: raise\n"
            "        time.sleep(0.05)\n"
        )
        for name, port in ports.items():
            argv = [sys.executable, "-c", dial, self.network.hosts[name].address, str(port)]
            subprocess.run(self.network.hosts["conductor"].command(argv), timeout=90, check=True)

    def _stand(self, host: LabHost) -> Path:
        role = host.name.partition("-")[0]
        log = self.directory / f"{host.name}.log"
        data = str(self.directory / "data" / host.name)
        host.launch([CRESCENDO, "peer", role, "--id", host.name, "--data", data, *self.access], log=log)
        return log

    @property
    def access(self) -> list[str]:
        return [
            "--control-file",
            str(self.directory / "control.url"),
            "--token-file",
            str(self.directory / "lab.token"),
        ]

    def start(self, name: str, **changes: object) -> tuple[subprocess.Popen[str], Path]:
        """Start a run on the conductor's host, without analysis; and where its recording will be."""
        url = f"amqp://{self.network.hosts['system'].address}:5672"
        path = write_experiment(self.directory / f"{name}.yml", name=name, system={"url": url}, **changes)
        out = self.directory / name
        argv = [sys.executable, RUN, str(path), str(out), *self.access[1::2]]
        command = self.network.hosts["conductor"].command(argv)
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True), out

    def run(self, name: str, **changes: object) -> Path:
        process, out = self.start(name, **changes)
        said, progress = process.communicate(timeout=120)
        assert (process.returncode, said) == (0, "sealed\n"), progress
        (run_dir,) = out.iterdir()
        return run_dir


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ManyHosts]:
    with HostNetwork() as network:
        yield ManyHosts(network, tmp_path_factory.mktemp("hosts"))


@pytest.fixture(scope="module")
def recording(hosts: ManyHosts) -> Path:
    return hosts.run(
        "six-hosts",
        workload={"senders": 2, "receivers": 1, "rate": 200},
        peers={"senders": [{"on": "sender-b"}, {"on": "sender-a"}], "receivers": 1},
        phases={"warmup": "500ms", "measure": "4s"},
        checks={"lost": 0},
    )


def test_offsets_are_those_that_were_planted(recording: Path) -> None:
    clocks = {clock.host: clock for clock in read_manifest(recording).clocks}
    assert set(clocks) == {"conductor", *PEERS}
    for name in ("conductor", "sender-a"):
        assert (clocks[name].offset_ns, clocks[name].drift_ppb, clocks[name].bound_ns) == (0, 0.0, 0)
    for name, shift_s in SHIFTS_S.items():
        error_ns = abs(clocks[name].offset_ns + shift_s * 10**9)
        print(f"{name}: error {error_ns / 1000:.1f} us, bound {clocks[name].bound_ns / 1000:.1f} us")
        assert error_ns <= clocks[name].bound_ns


def test_peers_are_where_they_were_asked_for(recording: Path) -> None:
    hosts = {peer.id: peer.host for peer in read_manifest(recording).peers}
    assert hosts == {"sender-0": "sender-b", "sender-1": "sender-a", "receiver-0": "receiver-a"}


def test_every_peer_started_at_the_agreed_time(recording: Path) -> None:
    """The first message of each sender was intended at t0, which its clock shows an hour apart."""
    manifest, opened = read_manifest(recording), open_recording(recording)
    start_ns = min(phase.start_ns for phase in manifest.phases)
    first: dict[str, int] = {}
    for part in opened.parts:
        if part.table == "sent":
            first[part.peer] = min(
                first.get(part.peer, 2**62), *pq.read_table(recording / part.path)["intended_ns"].to_pylist()
            )
    host_of = {peer.id: peer.host for peer in manifest.peers}
    bounds = {clock.host: clock.bound_ns for clock in manifest.clocks}
    assert len(first) == 2
    for peer, intended_ns in first.items():
        host = host_of[peer]
        assert abs(intended_ns - SHIFTS_S.get(host, 0) * 10**9 - start_ns) <= bounds[host] + 10**9 // 200


def test_it_passes_with_latencies_on_one_clock(recording: Path, spark: SparkSession) -> None:
    summary = analyze(recording, spark, lambda _: None)
    assert summary.verdict.outcome == "pass", summary.verdict
    manifest = read_manifest(recording)
    assert summary.clock_bound_ns == clock_bound_ns(manifest.clocks) > 0
    transfer = next(row for row in summary.latency if row.kind == "transfer" and row.phase == "measure")
    # Unmapped, these would be an hour and a day. No message arrives before it was sent.
    assert -summary.clock_bound_ns <= transfer.min_ns <= transfer.max_ns < 60 * 10**9
    assert json.loads((recording / "summary.json").read_text())["clock_bound_ns"] == summary.clock_bound_ns


@pytest.mark.soak
def test_a_link_that_is_cut_makes_the_run_incomplete_and_names_the_peer(hosts: ManyHosts) -> None:
    process, out = hosts.start(
        "cut",
        workload={"senders": 2, "receivers": 1, "rate": 200},
        peers={"senders": [{"on": "sender-a"}, {"on": "sender-b"}], "receivers": 1},
        phases={"warmup": "500ms", "measure": "60s"},
    )
    deadline = time.monotonic() + 60
    while not list(out.glob("*/manifest.json")):  # written at the barrier
        assert time.monotonic() < deadline
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)
    hosts.network.hosts["sender-b"].cut()
    try:
        said, progress = process.communicate(timeout=150)
    finally:
        hosts.network.hosts["sender-b"].restore()
    assert said == "incomplete\n", progress
    (run_dir,) = out.iterdir()
    manifest = read_manifest(run_dir)
    assert "sender-1" in manifest.reason, manifest.reason
    ended = {peer.id: peer.ended for peer in manifest.peers}
    assert ended["sender-1"] == "lost"
    assert not open_recording(run_dir).damaged
