"""Can the disk and the wall clock of a real system be broken, and is neither left broken?

What a disk does is measured by a process of the system's own kind: one that has its token and writes to its data.
"""

import contextlib
import errno
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pytest

from broken_nodes import events_of, executing, left_groups, mounts_below
from crescendo.faults.clock import CLOCK, ClockSettings
from crescendo.faults.disk import DISK, DiskSettings
from crescendo.faults.executor import FaultExecutor
from crescendo.faults.loop_disk import remove_abandoned_disks
from crescendo.model.errors import ConfigError
from crescendo.model.experiment_file import experiment_from
from crescendo.model.units import Duration
from crescendo.processes.die_with_parent import die_with_parent
from crescendo.processes.ending import TOKEN
from crescendo.run.breakable_surroundings import SystemSurroundings, breakable_surroundings
from crescendo.run.fault_control import NodeUnderFaults
from crescendo.run.startable import check_startable
from crescendo.systems.instance import start
from crescendo.systems.registry import system_of

SOON = "100ms"
SMALL = {"size": "64MiB"}
WRITER = """
import os, sys
for line in sys.stdin:
    file = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT, 0o600)
    os.write(file, b"x" * int(line)); os.fsync(file); os.close(file)
    print("written", flush=True)
"""
needs_disks = pytest.mark.skipif(
    bool(DISK.why_not(DiskSettings("slow"))), reason=DISK.why_not(DiskSettings("slow")) or "never"
)
needs_faketime = pytest.mark.skipif(bool(CLOCK.why_not(ClockSettings(Duration(1)))), reason="no libfaketime")


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeUnderFaults]:
    """A system with a disk and a clock of its own."""
    run_dir = tmp_path_factory.mktemp("surroundings")
    faults = [
        {"at": "1s", "do": "disk", "with": {"state": "full", **SMALL}},
        {"at": "1s", "do": "clock", "with": {"back": "1s"}},
    ]
    planned = experiment_from({"faults": faults}, default_name="x").faults
    with contextlib.ExitStack() as stack:
        executor = FaultExecutor([])
        stack.callback(executor.end_threads)
        surroundings = breakable_surroundings(planned, run_dir / "system", run_dir, executor.owe)
        instance = start(
            system_of("loopback"),
            {},
            directory=run_dir / "system",
            on_fork=die_with_parent(),
            stop_grace_s=2,
            surroundings=surroundings.given,
        )
        stack.callback(instance.stop)
        found = surroundings.of["system"]
        assert found.disk is not None
        assert os.path.ismount(found.disk)
        yield NodeUnderFaults("system", instance, found)
    assert mounts_below(run_dir) == []
    assert list(run_dir.iterdir()) == []


@contextlib.contextmanager
def writer(node: NodeUnderFaults) -> Iterator[Callable[[int], float]]:
    """A process of the node; the yielded function makes it write and sync some bytes, and returns its duration."""
    assert node.disk is not None
    child = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(node.disk / "written")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, TOKEN: node.token},
    )
    assert child.stdin is not None
    assert child.stdout is not None

    def write(count: int) -> float:
        began_s = time.monotonic()
        child.stdin.write(f"{count}\n")
        child.stdin.flush()
        assert child.stdout.readline() == "written\n"
        return time.monotonic() - began_s

    try:
        write(1)
        yield write
    finally:
        child.stdin.close()
        child.stdout.close()
        child.wait(30)


@needs_disks
@pytest.mark.quiet
def test_a_slow_disk_writes_no_faster_than_it_says(node: NodeUnderFaults) -> None:
    slow = {"at": SOON, "do": "disk", "with": {"state": "slow", "rate": "1MiB", **SMALL}}
    with writer(node) as write, executing(node, slow) as executor:
        (fault,) = events_of(executor, "fault")
        assert fault.detail["means"].startswith("control group")
        assert write(2**20) > 0.5
        executor.close()
        assert left_groups(os.getpid()) == []
        write(2**20)


@needs_disks
@pytest.mark.quiet
def test_a_frozen_disk_lets_writes_wait_until_it_thaws(node: NodeUnderFaults) -> None:
    frozen = {"at": SOON, "do": "disk", "with": {"state": "frozen", **SMALL}}
    with writer(node) as write, executing(node, frozen) as executor, ThreadPoolExecutor(1) as aside:
        events_of(executor, "fault")
        writing = aside.submit(write, 100)
        with pytest.raises(TimeoutError):
            writing.result(0.3)
        executor.close()
        assert writing.result(60) > 0.2


@needs_disks
def test_a_full_disk_refuses_writes_until_there_is_room(node: NodeUnderFaults) -> None:
    assert node.disk is not None
    full = {"at": SOON, "do": "disk", "with": {"state": "full", **SMALL}}
    with executing(node, full) as executor:
        (fault,) = events_of(executor, "fault")
        assert int(fault.detail["means"].split()[0].replace(",", "")) > 30 * 2**20
        with pytest.raises(OSError, match="No space left") as raised:
            (node.disk / "more").write_bytes(b"x" * 2**20)
        assert raised.value.errno == errno.ENOSPC
        executor.close()
        (node.disk / "more").write_bytes(b"x" * 2**20)
        (node.disk / "more").unlink()


@needs_faketime
def test_a_wall_clock_jumps_and_returns_and_the_monotonic_one_goes_on(node: NodeUnderFaults) -> None:
    environment = psutil.Process(node.main_process.pid).environ()
    look = "import time; print(time.time(), time.monotonic())"

    def clocks() -> tuple[float, float]:
        """What a process that the system starts would see now, relative to us."""
        command = [sys.executable, "-c", look]
        shown = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=30).stdout
        wall_s, monotonic_s = map(float, shown.split())
        return wall_s - time.time(), monotonic_s - time.monotonic()

    with executing(node, {"at": SOON, "do": "clock", "with": {"back": "1h"}}) as executor:
        events_of(executor, "fault")
        wall_s, monotonic_s = clocks()
        executor.close()
        after_s, _ = clocks()
    assert wall_s == pytest.approx(-3600, abs=30)
    assert monotonic_s == pytest.approx(0, abs=30)
    assert after_s == pytest.approx(0, abs=30)


def test_each_node_has_its_own_disk_and_clock_and_those_with_one_store_have_one_disk(tmp_path: Path) -> None:
    disk, clock = {"do": "disk", "with": {"state": "full", **SMALL}}, {"do": "clock", "with": {"back": "1s"}}
    faults = [{"at": "1s", "on": node, **fault} for node in ("node1", "node2") for fault in (disk, clock)]
    planned = experiment_from({"faults": faults}, default_name="x").faults

    def around(data: dict[str, str]) -> SystemSurroundings:
        return breakable_surroundings(planned, tmp_path, tmp_path, lambda cure: lambda: None, data)

    apart, shared = around({"node1": "node1", "node2": "node2"}), around({"node1": "store", "node2": "store"})
    assert (set(apart.given.disks), set(shared.given.disks)) == ({"node1", "node2"}, {"store"})
    assert {found.disk for found in shared.of.values()} == {tmp_path / "data" / "store"}
    for node, found in apart.of.items():
        assert found.disk == tmp_path / "data" / node
        assert apart.given.env(tmp_path, node)["FAKETIME_TIMESTAMP_FILE"] == str(found.clock_file)
    assert apart.given.env(tmp_path, "node3") == {}
    assert apart.of["node1"].clock_file != apart.of["node2"].clock_file


@pytest.mark.parametrize(
    ("fault", "sentence"),
    [
        ({"do": "disk", "with": {"state": "wet"}}, "settings of disk: state, rate, size"),
        ({"do": "disk", "with": {"state": "full", "size": "1MiB"}}, "size must be at least 64MiB"),
        ({"do": "clock", "with": {}}, "give forward or back"),
        ({"do": "clock", "with": {"back": "1s", "forward": "1s"}}, "give forward or back"),
    ],
)
def test_what_no_disk_or_clock_can_be_is_refused(fault: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigError) as raised:
        check_startable(experiment_from({"faults": [{"at": "1s", **fault}]}, default_name="x"))
    assert sentence in str(raised.value)


OWNER = """
import sys
from pathlib import Path
from crescendo.faults.cures import freeze
from crescendo.faults.loop_disk import LoopDisk, image_name

directory = Path(sys.argv[1])
disk = LoopDisk(directory / image_name(), 64 * 2**20, lambda cure: lambda: None)
(directory / "data").mkdir()
disk.attach(directory / "data")
freeze(str(directory / "data"))
print("frozen", flush=True)
sys.stdin.read()
"""


@needs_disks
def test_a_disk_that_nobody_is_left_to_unmount_goes_with_the_next_run(tmp_path: Path) -> None:
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert owner.stdout is not None
    assert owner.stdout.readline() == "frozen\n"
    assert len(mounts_below(tmp_path)) == 1
    remove_abandoned_disks()
    assert len(mounts_below(tmp_path)) == 1, "its owner is alive"
    owner.kill()
    owner.communicate()
    FaultExecutor([]).end_threads()
    assert mounts_below(tmp_path) == []
    assert [path.name for path in tmp_path.iterdir()] == ["data"]
