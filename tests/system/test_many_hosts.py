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
from lab_hosts import is_running, needs_namespaces
from many_hosts import DRIFT, DRIFTING, PEERS, SHIFTS_S, ManyHosts, hosts, peer_rows
from whole_runs import CRESCENDO

pytestmark = [
    needs_namespaces,
    pytest.mark.shares("spark"),  # all in one worker: one cluster for the tests with and without analysis
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
        inspect=[
            *({"kind": "process", "pid": pid, "on": "system"} for pid in hosts.inspected),
            {"kind": "process", "pid": os.getpid()},
        ],
        agents=[{"name": "a", "on": "system", "source": hosts.handlers}],
        faults=[{"at": "measure + 1s", "on": "a", "do": "handler", "with": {"command": "look"}}],
        phases={"warmup": "500ms", "measure": "4s"},
        checks={"lost": 0},
    )


def test_a_cluster_that_is_up_is_left_alone_and_says_how_it_is(hosts: ManyHosts) -> None:
    again = json.loads(hosts.cluster("up", "--json").stdout)
    assert (again["installed"], again["started"]) == ([], [])
    rows = {row["peer"]: row for row in again["peers"]}
    assert {name: row["pid"] for name, row in rows.items()} == hosts.pids
    assert {row["host"] for row in rows.values()} == set(PEERS)
    assert all(row["ready"] and row["state"] == "free" for row in rows.values())
    assert {row["role"] for row in rows.values()} == {"sender", "receiver", "inspector", "agent"}
    assert rows["inspector-system"]["clock_offset_ns"] is None  # it shares the conductor's clock
    for name in ("sender-b", "receiver-a"):
        row = rows[name]
        assert abs(row["clock_offset_ns"] - SHIFTS_S[name] * 10**9) <= row["clock_bound_ns"] <= MAX_BOUND_NS
    logs = json.loads(hosts.cluster("logs", "--json").stdout)
    assert "waits for runs" in logs["receiver-a"][-1]
    assert "waits for runs" in logs["control-broker"][-1]
    assert not [process for process in psutil.process_iter(["name", "cmdline"]) if _is_ssh_of(process, hosts)]


def test_offsets_are_those_that_were_planted(recording: Path) -> None:
    clocks = {clock.host: clock for clock in read_manifest(recording).clocks}
    assert set(clocks) == {"conductor", *PEERS}
    for name in ("conductor", "system"):
        assert (clocks[name].offset_ns, clocks[name].drift_ppb, clocks[name].bound_ns) == (0, 0.0, 0)
    for name in set(SHIFTS_S) - {DRIFTING}:
        error_ns = abs(clocks[name].offset_ns + SHIFTS_S[name] * 10**9)
        print(f"{name}: error {error_ns / 1000:.1f} us, bound {clocks[name].bound_ns / 1000:.1f} us")
        assert error_ns <= clocks[name].bound_ns <= MAX_BOUND_NS
        assert error_ns <= MAX_ERROR_NS


def test_a_drifting_clock_is_followed_through_the_run(hosts: ManyHosts, recording: Path) -> None:
    """What the host's own processes see, against the kernel's clock, which libfaketime does not reach."""
    clock = next(clock for clock in read_manifest(recording).clocks if clock.host == DRIFTING)
    assert clock.drift_ppb == pytest.approx((1 / DRIFT - 1) * 1e9, abs=30_000)
    to_true = _true_clock(hosts, DRIFTING)
    errors_ns = [
        abs(_mapped(clock, intended_ns) - to_true(intended_ns))
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
        "inspector-process-2": "system",
        "inspector-process-3": "conductor",
        "agent-a": "system",
    }
    (event,) = _events(recording, "handler event")
    assert (event["event"], event["host"]) == ("seen", "system")


def test_every_inspector_has_its_own_target(hosts: ManyHosts, recording: Path) -> None:
    """Told apart by their size. Two of them are on the same host."""
    parts = [recording / part.path for part in open_recording(recording).parts if part.table == "readings"]
    rows = [row for part in parts for row in pq.read_table(part).to_pylist()]
    sizes = {pid: psutil.Process(pid).memory_info().vms for pid in (os.getpid(), *hosts.inspected)}
    found = {}
    for row in rows:
        if row["metric"] == "virtual_bytes" and row["entity"] in {"process", f"process/{os.getpid()}"}:
            found[row["source"]] = min(sizes, key=lambda pid: abs(sizes[pid] - row["value"]))
    assert found == {
        "inspector-process": hosts.inspected[0],
        "inspector-process-2": hosts.inspected[1],
        "inspector-process-3": os.getpid(),
    }


def test_every_peer_started_at_the_agreed_time(recording: Path) -> None:
    """The first message of each sender was intended at t0, which its clock shows an hour apart."""
    manifest = read_manifest(recording)
    start_ns = min(phase.start_ns for phase in manifest.phases)
    clocks = {clock.host: clock for clock in manifest.clocks}
    for host in ("sender-b", DRIFTING):
        first_ns = min(_intended(recording, _peer_on(recording, host)))
        assert abs(_mapped(clocks[host], first_ns) - start_ns) <= clocks[host].bound_ns + 10**9 // 200


def test_it_passes_with_latencies_on_one_clock(hosts: ManyHosts, recording: Path, spark: SparkSession) -> None:
    """Those that rows and planted shifts give, without the clocks of the manifest. Unmapped they would be a day."""
    summary = analyze(recording, spark, lambda _: None)
    assert summary.verdict.outcome == "pass", summary.verdict
    bound_ns = summary.clock_bound_ns
    assert 0 < bound_ns == clock_bound_ns(read_manifest(recording).clocks) <= 2 * MAX_BOUND_NS
    to_true = {name: _true_clock(hosts, name) for name in PEERS}
    for kind, since in (("transfer", "sent_ns"), ("response", "intended_ns")):
        row = summary.latency_of(kind)
        assert row is not None
        # A message that is due within a clock's error of either end of the phase may belong to it or not.
        surely, perhaps = (_true_latencies(to_true, recording, since, slack_ns) for slack_ns in (-(10**6), 10**6))
        assert len(surely) <= row.count <= len(perhaps) <= len(surely) + 4
        assert perhaps[0] - bound_ns <= row.min_ns <= surely[0] + bound_ns
        assert surely[-1] - bound_ns <= row.max_ns <= perhaps[-1] + bound_ns
        median_ns = row.percentiles_ns["p50"]
        assert median_ns is not None
        middle = len(surely) // 2
        assert surely[middle - 4] * 0.99 - bound_ns <= median_ns <= surely[middle + 4] * 1.01 + bound_ns
    assert json.loads((recording / "summary.json").read_text())["clock_bound_ns"] == summary.clock_bound_ns


def test_a_link_that_is_cut_makes_the_run_invalid_and_names_the_peer(hosts: ManyHosts, spark: SparkSession) -> None:
    process, out = _start_long_run(hosts, "cut")
    hosts.network.hosts["sender-b"].cut()
    try:
        said, progress = process.communicate(timeout=150)
    finally:
        hosts.network.hosts["sender-b"].restore()
    assert said == "incomplete\n", progress
    run_dir = next(path for path in out.iterdir() if not path.is_symlink())
    manifest = read_manifest(run_dir)
    assert {peer.id: peer.ended for peer in manifest.peers}["sender-1"] == "lost"
    assert not open_recording(run_dir).damaged
    verdict = analyze(run_dir, spark, lambda _: None).verdict
    assert verdict.outcome == "invalid"
    assert all("sender-1" in "; ".join(check.reasons) for check in verdict.checks), verdict


SLOW = """#!{python}
import os, sys, time
if "peer" in sys.argv:
    time.sleep(600)
os.execv({python!r}, [{python!r}, *sys.argv[1:]])
"""


def test_nothing_is_left_when_ssh_is_killed(hosts: ManyHosts) -> None:
    """While peers start, which are not ready yet: on their hosts nobody is there to end them but our own program."""
    slow = hosts.directory / "slow-python"
    slow.write_text(SLOW.format(python=sys.executable))
    slow.chmod(0o755)
    inventory = hosts.second_inventory(str(slow))
    token = hosts.directory / "second.token"
    token.touch(mode=0o600)
    token.write_text("5ec0" * 12 + "\n")
    before = {name: hosts.processes_on(hosts.network.hosts[name]) for name in PEERS}
    argv = [CRESCENDO, "cluster", "up", str(inventory), "--control", "mqtt://nobody:1883", "--token-file", str(token)]
    up = subprocess.Popen(
        hosts.network.hosts["conductor"].command(argv), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    _until(lambda: all(_new(hosts, before, name, "crescendo.cli.main peer") for name in PEERS), 60)
    killed = [process for process in psutil.process_iter(["name", "cmdline"]) if _is_ssh_of(process, hosts)]
    assert len(killed) == len(PEERS)
    for process in killed:
        process.kill()
    _until(lambda: {name: hosts.processes_on(hosts.network.hosts[name]) for name in PEERS} == before, 20)
    _, said = up.communicate(timeout=60)
    assert up.returncode != 0
    assert all(name in said for name in PEERS), said
    assert "Traceback" not in said
    down = hosts.on_conductor([CRESCENDO, "cluster", "down", str(inventory), "--token-file", str(token)])
    assert "0 peer(s) ended, nothing is left" in down.stdout


@pytest.mark.parametrize("victims", [("sender-b", "conductor"), pytest.param(("conductor",), marks=pytest.mark.soak)])
def test_no_process_of_a_run_outlives_a_kill_of_its_parent(hosts: ManyHosts, victims: tuple[str, ...]) -> None:
    """Of a standing peer, and of the conductor; the other standing peers stay, as they should."""
    process, _ = _start_long_run(hosts, "killed")
    assert _of_runs(hosts, "sender-b")
    if "sender-b" in victims:
        os.kill(hosts.pids["sender-b"], signal.SIGKILL)
        _until(lambda: not _of_runs(hosts, "sender-b"), 20)
    process.kill()
    process.communicate(timeout=60)
    _until(lambda: not _of_runs(hosts, "conductor", *PEERS), 20)
    assert hosts.processes_on(hosts.network.hosts["conductor"]) == set()


def test_down_leaves_nothing_on_any_host(hosts: ManyHosts) -> None:
    """Last in this module: no process, no file, no ssh."""
    standing = sum(map(is_running, hosts.pids.values()))  # a test before may have killed one
    assert f"{standing + 1} peer(s) ended, nothing is left" in hosts.cluster("down").stdout  # and the broker
    assert not (hosts.directory / "on-hosts").exists()
    assert not list(hosts.directory.glob("control.url*"))
    for name in ("broker", *PEERS):
        assert hosts.processes_on(hosts.network.hosts[name]) == set()
    done = hosts.cluster("status", "--json", check=False)
    assert done.returncode == 1
    assert all(row["faults"] == ["not running"] for row in peer_rows(done).values())


def _start_long_run(hosts: ManyHosts, name: str) -> tuple["subprocess.Popen[str]", Path]:
    """A run of a minute on three hosts, at its barrier."""
    process, out = hosts.start(
        name,
        patience_s=2,
        workload={"senders": 2, "receivers": 1, "rate": 200},
        peers={"senders": [{"on": DRIFTING}, {"on": "sender-b"}], "receivers": 1},
        phases={"warmup": "500ms", "measure": "60s"},
    )
    _await_barrier(process, out)
    return process, out


def _until(condition: Callable[[], object], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def _of_runs(hosts: ManyHosts, *names: str) -> list[str]:
    """Processes that take part in a run, on these hosts."""
    return [line for name in names for line in hosts.processes_on(hosts.network.hosts[name]) if "launched_peer" in line]


def _new(hosts: ManyHosts, before: dict[str, set[str]], name: str, words: str) -> list[str]:
    return [line for line in hosts.processes_on(hosts.network.hosts[name]) - before[name] if words in line]


def _is_ssh_of(process: psutil.Process, hosts: ManyHosts) -> bool:
    return process.info["name"] == "ssh" and str(hosts.directory) in " ".join(process.info["cmdline"] or ())


def _events(recording: Path, kind: str) -> list[dict[str, str]]:
    parts = [recording / part.path for part in open_recording(recording).parts if part.table == "events"]
    rows = [row for part in parts for row in pq.read_table(part, columns=["kind", "detail"]).to_pylist()]
    return [json.loads(row["detail"]) for row in rows if row["kind"] == kind]


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


def _true_clock(hosts: ManyHosts, name: str) -> Callable[[int], int]:
    """From a time of this host to the conductor's, as planted: by the namespace, and by libfaketime where it drifts."""
    shift_ns = SHIFTS_S.get(name, 0) * 10**9
    if name != DRIFTING:
        return lambda host_ns: host_ns - shift_ns
    # A reading of both clocks by another process of that host places the line; the rate is exact by construction.
    argv = ["env", *(f"{key}={value}" for key, value in hosts.fake_clock.items())]
    argv += [sys.executable, "-c", BOTH_CLOCKS, str(_CLOCK_GETTIME[os.uname().machine])]
    _, shown_ns, true_ns = json.loads(subprocess.check_output(hosts.network.hosts[name].command(argv), timeout=30))
    return lambda host_ns: true_ns - shift_ns + round((host_ns - shown_ns) / DRIFT)


def _true_latencies(to_true: dict[str, Callable[[int], int]], recording: Path, since: str, slack_ns: int) -> list[int]:
    """Of the messages that were due in the measure phase, or up to `slack_ns` outside, in order."""
    manifest = read_manifest(recording)
    measure = next(phase for phase in manifest.phases if phase.name == "measure")
    host_of = {peer.id: peer.host for peer in manifest.peers}
    clock_of = {(one.role, one.id): to_true[host_of[one.peer]] for one in manifest.connections}
    found = []
    for part in (part for part in open_recording(recording).parts if part.table == "received"):
        for row in pq.read_table(recording / part.path).to_pylist():
            of_sender, of_receiver = clock_of["sender", row["sender"]], clock_of["receiver", row["receiver"]]
            if measure.start_ns - slack_ns <= of_sender(row["intended_ns"]) < measure.end_ns + slack_ns:
                found.append(of_receiver(row["received_ns"]) - of_sender(row[since]))
    return sorted(found)
