"""A cluster of six hosts over real ssh, with clocks that are shifted and one that drifts: up, runs, down."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from crescendo.pipeline.job import analyze
from crescendo.record.manifest import Clock, clock_bound_ns, read_manifest
from crescendo.record.reader import open_recording
from lab_hosts import needs_namespaces
from many_hosts import DRIFT, DRIFTING, PEERS, SHIFTS_S, ManyHosts, hosts, peer_rows

pytestmark = [
    needs_namespaces,
    pytest.mark.skipif(os.geteuid() != 0, reason="sshd changes accounts, which needs root"),
]
__all__ = ["hosts"]
MAX_ERROR_NS, MAX_BOUND_NS = 50_000, 100_000
_CLOCK_GETTIME = {"x86_64": 228, "aarch64": 113}
BOTH_CLOCKS = (
    "import ctypes, json, os, sys, time\n"
    "libc = ctypes.CDLL(None)\n"
    "class Time(ctypes.Structure): _fields_ = [('s', ctypes.c_long), ('ns', ctypes.c_long)]\n"
    "def true_ns():\n"
    "    now = Time()\n"
    "    libc.syscall(int(sys.argv[1]), 1, ctypes.byref(now))  # past libfaketime, which replaces functions\n"
    "    return now.s * 10**9 + now.ns\n"
    "def both():\n"
    "    before, shown, after = true_ns(), time.monotonic_ns(), true_ns()\n"
    "    return after - before, shown, (before + after) // 2\n"
    "print(json.dumps(min(both() for _ in range(1000))))\n"
)


@pytest.fixture(scope="module")
def recording(hosts: ManyHosts) -> Path:
    return hosts.run(
        "six-hosts",
        workload={"senders": 2, "receivers": 1, "rate": 200},
        peers={"senders": [{"on": "sender-b"}, {"on": DRIFTING}], "receivers": 1},
        inspect=[{"kind": "process", "pid": hosts.relay.pid, "on": "system"}],
        phases={"warmup": "500ms", "measure": "4s"},
        checks={"lost": 0},
    )


def test_a_cluster_that_is_up_is_left_alone_and_says_how_it_is(hosts: ManyHosts) -> None:
    before = {name: row["pid"] for name, row in peer_rows(hosts.cluster("status", "--json")).items()}
    again = json.loads(hosts.cluster("up", "--json").stdout)
    assert (again["installed"], again["started"]) == ([], [])
    rows = {row["peer"]: row for row in again["peers"]}
    assert {name: row["pid"] for name, row in rows.items()} == before
    assert {row["host"] for row in rows.values()} == set(PEERS)
    assert all(row["ready"] and row["state"] == "free" for row in rows.values())
    assert rows["inspector-system"]["clock_offset_ns"] is None  # it shares the conductor's clock
    for name in ("sender-b", "receiver-a"):
        row = rows[name]
        assert abs(row["clock_offset_ns"] - SHIFTS_S[name] * 10**9) <= row["clock_bound_ns"] <= MAX_BOUND_NS
    assert "waits for runs" in json.loads(hosts.cluster("logs", "--json").stdout)["receiver-a"][-1]
    assert not [
        process
        for process in psutil.process_iter(["name", "cmdline"])
        if process.info["name"] == "ssh" and str(hosts.directory) in " ".join(process.info["cmdline"] or ())
    ]


def test_offsets_are_those_that_were_planted(recording: Path) -> None:
    clocks = {clock.host: clock for clock in read_manifest(recording).clocks}
    assert set(clocks) == {"conductor", *PEERS}
    for name in ("conductor", "system"):
        assert (clocks[name].offset_ns, clocks[name].drift_ppb, clocks[name].bound_ns) == (0, 0.0, 0)
    for name in set(SHIFTS_S) - {DRIFTING}:
        error_ns = abs(clocks[name].offset_ns + SHIFTS_S[name] * 10**9)
        print(f"{name}: error {error_ns / 1000:.1f} us, bound {clocks[name].bound_ns / 1000:.1f} us")
        assert error_ns <= clocks[name].bound_ns
        assert error_ns <= MAX_ERROR_NS


def test_a_drifting_clock_is_followed_through_the_run(hosts: ManyHosts, recording: Path) -> None:
    """What the host's own processes see, against the kernel's clock, which libfaketime does not reach."""
    clock = next(clock for clock in read_manifest(recording).clocks if clock.host == DRIFTING)
    assert clock.drift_ppb == pytest.approx((1 / DRIFT - 1) * 1e9, abs=30_000)
    line = _true_line(hosts)
    errors_ns = [
        abs(_mapped(clock, intended_ns) - line(intended_ns))
        for intended_ns in _intended(recording, _peer_on(recording, DRIFTING))
    ]
    print(f"{DRIFTING}: error {max(errors_ns) / 1000:.1f} us, bound {clock.bound_ns / 1000:.1f} us")
    assert max(errors_ns) <= min(clock.bound_ns, MAX_ERROR_NS)
    assert clock.bound_ns <= MAX_BOUND_NS


def test_peers_are_where_they_were_asked_for(recording: Path) -> None:
    found = {peer.id: peer.host for peer in read_manifest(recording).peers}
    assert found == {
        "sender-0": "sender-b",
        "sender-1": DRIFTING,
        "receiver-0": "receiver-a",
        "inspector-process": "system",
    }
    assert open_recording(recording).rows("readings") > 0  # of the relay, by the inspector on its host


def test_every_peer_started_at_the_agreed_time(recording: Path) -> None:
    """The first message of each sender was intended at t0, which its clock shows an hour apart."""
    manifest = read_manifest(recording)
    start_ns = min(phase.start_ns for phase in manifest.phases)
    clocks = {clock.host: clock for clock in manifest.clocks}
    for host in ("sender-b", DRIFTING):
        first_ns = min(_intended(recording, _peer_on(recording, host)))
        assert abs(_mapped(clocks[host], first_ns) - start_ns) <= clocks[host].bound_ns + 10**9 // 200


def test_it_passes_with_latencies_on_one_clock(recording: Path, spark: SparkSession) -> None:
    summary = analyze(recording, spark, lambda _: None)
    assert summary.verdict.outcome == "pass", summary.verdict
    manifest = read_manifest(recording)
    assert summary.clock_bound_ns == clock_bound_ns(manifest.clocks) > 0
    transfer = next(row for row in summary.latency if row.kind == "transfer" and row.phase == "measure")
    # Unmapped, these would be an hour, a day and half a century. No message arrives before it was sent.
    assert -summary.clock_bound_ns <= transfer.min_ns <= transfer.max_ns < 60 * 10**9
    assert json.loads((recording / "summary.json").read_text())["clock_bound_ns"] == summary.clock_bound_ns


def test_a_link_that_is_cut_makes_the_run_incomplete_and_names_the_peer(hosts: ManyHosts) -> None:
    process, out = hosts.start(
        "cut",
        patience_s=2,
        workload={"senders": 2, "receivers": 1, "rate": 200},
        peers={"senders": [{"on": DRIFTING}, {"on": "sender-b"}], "receivers": 1},
        phases={"warmup": "500ms", "measure": "60s"},
    )
    _await_barrier(process, out)
    hosts.network.hosts["sender-b"].cut()
    try:
        said, progress = process.communicate(timeout=150)
    finally:
        hosts.network.hosts["sender-b"].restore()
    assert said == "incomplete\n", progress
    run_dir = next(path for path in out.iterdir() if not path.is_symlink())
    manifest = read_manifest(run_dir)
    assert "sender-1" in manifest.reason, manifest.reason
    assert {peer.id: peer.ended for peer in manifest.peers}["sender-1"] == "lost"
    assert not open_recording(run_dir).damaged


@pytest.mark.soak
@pytest.mark.parametrize("victim", ["conductor", "standing peer"])
def test_no_process_of_a_run_outlives_a_kill(hosts: ManyHosts, victim: str) -> None:
    process, out = hosts.start(
        "killed",
        patience_s=2,
        workload={"senders": 2, "receivers": 1, "rate": 200},
        peers={"senders": [{"on": DRIFTING}, {"on": "sender-b"}], "receivers": 1},
        phases={"warmup": "500ms", "measure": "60s"},
    )
    _await_barrier(process, out)
    everywhere = [hosts.network.hosts[name] for name in PEERS]
    assert any("--launch" in line for host in everywhere for line in hosts.processes_on(host))
    if victim == "conductor":
        process.kill()
    else:
        os.kill(peer_rows(hosts.cluster("status", "--json"))["sender-b"]["pid"], signal.SIGKILL)
    killed = time.monotonic()
    while any("--launch" in line for host in everywhere for line in hosts.processes_on(host)):
        assert time.monotonic() < killed + 20
        time.sleep(0.1)
    process.communicate(timeout=150)
    again = json.loads(hosts.cluster("up", "--json").stdout)
    assert again["started"] == ([] if victim == "conductor" else ["sender-b"])


def test_down_leaves_nothing_on_any_host(hosts: ManyHosts) -> None:
    """Last in this module: no process, no file, no ssh; and a second time there is nothing to do."""
    assert "4 peer(s) ended, nothing is left" in hosts.cluster("down").stdout
    assert "0 peer(s) ended" in hosts.cluster("down").stdout
    assert not (hosts.directory / "on-hosts").exists()
    for name in PEERS:
        assert hosts.processes_on(hosts.network.hosts[name]) == set()
    done = hosts.cluster("status", "--json", check=False)
    assert done.returncode == 1
    assert all(row["faults"] == ["not running"] for row in peer_rows(done).values())


def _await_barrier(process: subprocess.Popen[str], out: Path) -> None:
    """Wait until the manifest is there, which is written when the first message is due."""
    deadline = time.monotonic() + 60
    while not list(out.glob("*/manifest.json")):
        assert time.monotonic() < deadline
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)


def _peer_on(recording: Path, host: str) -> str:
    return next(peer.id for peer in read_manifest(recording).peers if peer.host == host)


def _intended(recording: Path, peer: str) -> list[int]:
    """When the messages of a sender were due, on the clock of its host."""
    parts = [part for part in open_recording(recording).parts if part.table == "sent" and part.peer == peer]
    return [each for part in parts for each in pq.read_table(recording / part.path)["intended_ns"].to_pylist()]


def _mapped(clock: Clock, host_ns: int) -> int:
    """A time of the host on the conductor's clock, with the numbers of the manifest."""
    return host_ns + clock.offset_ns + round((host_ns - clock.reference_ns) * clock.drift_ppb / 1e9)


def _true_line(hosts: ManyHosts) -> Callable[[int], int]:
    """The true mapping, from a reading of both clocks by another process of that host."""
    host = hosts.network.hosts[DRIFTING]
    argv = ["env", *(f"{key}={value}" for key, value in hosts.fake_clock.items())]
    argv += [sys.executable, "-c", BOTH_CLOCKS, str(_CLOCK_GETTIME[os.uname().machine])]
    _, shown_ns, true_ns = json.loads(subprocess.check_output(host.command(argv), timeout=30))
    true_ns -= SHIFTS_S[DRIFTING] * 10**9  # of the time namespace
    # The rate is exact by construction; one reading places the line.
    return lambda host_ns: true_ns + round((host_ns - shown_ns) / DRIFT)
