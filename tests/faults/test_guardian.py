"""Is every fault undone, whichever process is killed?

The owner of the faults is a process of its own here. Its node outlives it in these tests, unlike in a run, so that what
the guardian undoes can be seen.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import psutil
import pytest

from broken_nodes import events_of, executing, left_groups, running_node, state_of, within
from crescendo.faults.control_groups import abandoned_groups, hierarchy_of
from crescendo.processes.ending import processes_with
from crescendo.run.diagnosis import remove_leftovers

OWNER = """
import json, resource, sys, time
from pathlib import Path
from crescendo.faults.executor import FaultExecutor
from crescendo.run.fault_control import NodeUnderFaults
from crescendo.systems.instance import start
from crescendo.systems.registry import system_of
from broken_nodes import events_of, scheduled

instance = start(system_of("loopback"), {}, directory=Path(sys.argv[1]))
node = NodeUnderFaults("system", instance)
before = resource.prlimit(node.main_process.pid, resource.RLIMIT_NOFILE)
faults = [
    {"at": 0, "do": "descriptors", "with": {"limit": 5}},
    {"at": 0, "do": "cpu", "with": {"share": 0.2}},
    {"at": "200ms", "do": "pause"},
]
executor = FaultExecutor(scheduled(*faults))
executor.aim({"node": {"system": node}})
executor.arm(time.monotonic_ns())
events_of(executor, "fault", 3)
facts = {"node": node.main_process.pid, "token": node.token, "guardian": executor.guardian_pid, "limit": before[0]}
print(json.dumps(facts), flush=True)
sys.stdin.read()
"""


class Broken(NamedTuple):
    """A node with three faults, and the process that caused them."""

    owner: subprocess.Popen[bytes]
    node: int
    guardian: int
    limit: int


@pytest.fixture
def broken(tmp_path: Path) -> Iterator[Broken]:
    path = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER, str(tmp_path / "system")],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": path},
    )  # fmt: skip
    facts: dict[str, Any] = {}
    try:
        assert owner.stdout is not None
        facts = json.loads(owner.stdout.readline())
        assert state_of(facts["node"]) == "T"
        yield Broken(owner, facts["node"], facts["guardian"], facts["limit"])
    finally:
        owner.kill()
        owner.communicate()
        for process in processes_with(facts["token"]) if facts else ():
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()


def is_well(broken: Broken) -> bool:
    soft = psutil.Process(broken.node).rlimit(psutil.RLIMIT_NOFILE)[0]
    return state_of(broken.node) != "T" and soft == broken.limit and left_groups(broken.owner.pid) == []


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_the_guardian_cures_when_the_owner_is_killed(broken: Broken, number: signal.Signals) -> None:
    os.kill(broken.owner.pid, number)
    assert within(20, lambda: is_well(broken))
    assert within(20, lambda: state_of(broken.guardian) in {"", "Z"}), "and then leaves"


def test_a_killed_guardian_is_replaced_and_its_successor_knows_the_open_cures(tmp_path: Path) -> None:
    with (
        running_node(tmp_path / "system") as node,
        executing(node, {"at": 0, "do": "pause"}) as executor,
    ):
        events_of(executor, "fault")
        first = executor.guardian_pid
        os.kill(first, signal.SIGKILL)
        assert within(20, lambda: executor.guardian_pid != first)
        second = executor.guardian_pid
        executor.close()
        assert state_of(node.main_process.pid) != "T"
    assert within(20, lambda: state_of(second) in {"", "Z"})


@pytest.mark.skipif(hierarchy_of("cpu") is None, reason="no control groups here")
def test_what_is_left_when_both_are_killed_is_removed_on_request(broken: Broken) -> None:
    os.kill(broken.guardian, signal.SIGKILL)
    os.kill(broken.owner.pid, signal.SIGKILL)
    broken.owner.wait()
    os.kill(broken.node, signal.SIGKILL)  # in a run, it dies with the owner
    assert within(20, lambda: state_of(broken.node) in {"", "Z"})
    assert set(left_groups(broken.owner.pid)) & set(abandoned_groups())

    said: list[str] = []

    def are_removed() -> bool:
        said.extend(remove_leftovers())
        return left_groups(broken.owner.pid) == []

    assert within(20, are_removed)
    assert any(f"crescendo-{broken.owner.pid}-" in sentence for sentence in said)
