"""Processes, compared with what they do and with /proc."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from crescendo.inspectors.base import InspectionTarget
from crescendo.inspectors.kinds.process import TREE, ProcessInspector
from crescendo.model.errors import ConfigError, PeerError
from inspecting import TIMEOUT_S, values_of

WRITTEN = 3_000_000
CHILD = """
import sys, time
enough = time.process_time() + 0.3
while time.process_time() < enough:
    pass
print("ready", flush=True)
sys.stdin.read()
"""
PARENT = f"""
import subprocess, sys, threading, time
child = subprocess.Popen([sys.executable, "-c", {CHILD!r}], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
child.stdout.readline()
held = bytearray(50_000_000)
with open("/dev/null", "wb", buffering=0) as sink:
    sink.write(bytes({WRITTEN}))
threads = [threading.Thread(target=time.sleep, args=(1000,), daemon=True) for _ in range(3)]
[thread.start() for thread in threads]
print(child.pid, flush=True)
sys.stdin.readline()
child.stdin.close(); child.wait()
print("alone", flush=True)
sys.stdin.readline()
"""
NAPPING = """
import threading, time
def nap():
    while True:
        time.sleep(0.0001)
threading.Thread(target=nap, daemon=True).start()
time.sleep(0.5)
print(flush=True)
threading.Event().wait()
"""


@pytest.fixture
def parent() -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-c", PARENT]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        try:
            yield process
        finally:
            process.kill()


def test_the_whole_tree_is_measured_and_ended_children_stay_in_the_totals(parent: subprocess.Popen[bytes]) -> None:
    assert parent.stdout is not None
    assert parent.stdin is not None
    child = int(parent.stdout.readline())
    inspector = ProcessInspector(InspectionTarget({}, parent.pid))
    with_child = values_of(inspector.inspect())
    assert with_child[TREE, "processes"] == 2
    assert with_child[f"{TREE}/{child}", "cpu_seconds"] >= 0.3
    assert with_child[TREE, "cpu_seconds"] >= _cpu_s(parent.pid) * 0.9 + 0.3
    assert with_child[f"{TREE}/{parent.pid}", "threads"] == 4
    assert with_child[f"{TREE}/{parent.pid}", "rss_bytes"] > 50_000_000
    assert with_child[f"{TREE}/{parent.pid}", "written_bytes"] >= WRITTEN
    assert with_child[f"{TREE}/{parent.pid}", "descriptors"] == len(list(Path(f"/proc/{parent.pid}/fd").iterdir()))
    parent.stdin.write(b"\n")
    parent.stdin.flush()
    assert parent.stdout.readline() == b"alone\n"
    alone = values_of(inspector.inspect())
    assert alone[TREE, "processes"] == 1
    assert alone[TREE, "cpu_seconds"] >= with_child[TREE, "cpu_seconds"]
    assert alone[TREE, "rss_bytes"] < with_child[TREE, "rss_bytes"]


def test_a_busy_core_is_one_core() -> None:
    burn = "import time\nprint(flush=True)\nwhile True: pass"
    with subprocess.Popen([sys.executable, "-c", burn], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        inspector = ProcessInspector(InspectionTarget({}, process.pid))
        assert (TREE, "cpu_cores") not in values_of(inspector.inspect())
        before_s, started_s = _cpu_s(process.pid), time.monotonic()
        time.sleep(0.5)
        cores = values_of(inspector.inspect())[TREE, "cpu_cores"]
        truth = (_cpu_s(process.pid) - before_s) / (time.monotonic() - started_s)
        process.kill()
    assert cores == pytest.approx(truth, abs=0.15)
    assert cores > 0.05


def test_context_switches_of_all_threads_are_counted() -> None:
    with subprocess.Popen([sys.executable, "-c", NAPPING], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        seen = values_of(ProcessInspector(InspectionTarget({}, process.pid)).inspect())[TREE, "voluntary_switches"]
        first = _voluntary(Path(f"/proc/{process.pid}/status"))
        process.kill()
    assert seen > first + 100  # the napping thread is not the first one


def test_interfaces_are_those_of_the_kernel() -> None:
    values = values_of(ProcessInspector(InspectionTarget({}, os.getpid())).inspect())
    listed = {path.name for path in Path("/sys/class/net").iterdir() if path.is_dir()}
    assert {entity.removeprefix("interface/") for entity, _ in values if entity.startswith("interface/")} == listed
    bytes_now = int(Path("/sys/class/net/lo/statistics/rx_bytes").read_text(encoding="ascii"))
    assert 0 < values["interface/lo", "received_bytes"] <= bytes_now


def test_inspecting_an_ended_process_fails(parent: subprocess.Popen[bytes]) -> None:
    inspector = ProcessInspector(InspectionTarget({}, parent.pid))
    inspector.inspect()
    parent.kill()
    # Not waited for: a zombie has ended, too.
    deadline_s = time.monotonic() + TIMEOUT_S
    while Path(f"/proc/{parent.pid}/stat").read_text(encoding="ascii").rsplit(")", 1)[1].split()[0] != "Z":
        assert time.monotonic() < deadline_s
    with pytest.raises(PeerError, match=f"process {parent.pid} has ended"):
        inspector.inspect()
    parent.wait()
    with pytest.raises(PeerError, match=f"process {parent.pid} has ended"):
        inspector.inspect()
    with pytest.raises(PeerError, match=f"process {parent.pid} does not exist"):
        ProcessInspector(InspectionTarget({}, parent.pid)).inspect()


def test_a_missing_pid_is_a_configuration_error() -> None:
    with pytest.raises(ConfigError, match="needs a pid"):
        ProcessInspector(InspectionTarget({}))


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _voluntary(status: Path) -> int:
    lines = status.read_text(encoding="utf-8").splitlines()
    return int(next(line for line in lines if line.startswith("voluntary_ctxt_switches")).split()[1])
