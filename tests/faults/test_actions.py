"""Does each action do to a real system what it says, and is nothing left of it afterwards?"""

import os
import resource
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from broken_nodes import events_of, executing, left_groups, running_node, state_of, within
from crescendo.faults.action import NoSettings
from crescendo.faults.command import ALLOWED, NODE_VARIABLE
from crescendo.faults.control_groups import Hierarchy, cpu_files, hierarchy_of, make_group, memory_files
from crescendo.faults.disconnect import DISCONNECT
from crescendo.faults.registry import ACTIONS, action_of
from crescendo.faults.resource_limits import CpuSettings, LimitMemory, MemorySettings, Starve
from crescendo.model.errors import ConfigError
from crescendo.model.units import Size
from crescendo.run.fault_control import NodeUnderFaults

SOON = "100ms"
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
needs_groups = pytest.mark.skipif(hierarchy_of("cpu") is None, reason="no control groups here")


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeUnderFaults]:
    with running_node(tmp_path_factory.mktemp("faults") / "system") as started:
        yield started


def connected(node: NodeUnderFaults) -> socket.socket:
    return socket.create_connection(("127.0.0.1", node.ports[0]), 5)


def answers(node: NodeUnderFaults) -> bool:
    """Whether it greets an AMQP client in time."""
    with connected(node) as client:
        client.settimeout(0.3)
        client.sendall(b"AMQP\x03\x01\x00\x00")
        try:
            return client.recv(8).startswith(b"AMQP")
        except TimeoutError:
            return False


def test_a_paused_node_is_silent_until_the_run_ends(node: NodeUnderFaults) -> None:
    with executing(node, {"at": SOON, "do": "pause"}) as executor:
        events_of(executor, "fault")
        assert state_of(node.main_process.pid) == "T"
        assert not answers(node)
        executor.close()
        (cure,) = events_of(executor, "cure")
    assert cure.detail["final"]
    assert state_of(node.main_process.pid) != "T"
    assert within(10, lambda: answers(node))


def test_a_pause_begins_on_time_and_lasts_as_long_as_it_says(node: NodeUnderFaults) -> None:
    with executing(node, {"at": SOON, "do": "pause", "for": "300ms"}) as executor:
        (fault,), (cure,) = events_of(executor, "fault"), events_of(executor, "cure")
        assert state_of(node.main_process.pid) != "T"
    assert not cure.detail["final"]
    assert cure.t_ns - fault.t_ns >= 300_000_000
    assert fault.t_ns >= fault.detail["planned_ns"], "never before its time"


@pytest.mark.parametrize(("do", "more"), [("kill", {"for": "200ms"}), ("stop", {"for": "200ms"}), ("restart", {})])
def test_a_node_that_was_ended_serves_again(node: NodeUnderFaults, do: str, more: dict[str, Any]) -> None:
    before = node.main_process
    with executing(node, {"at": SOON, "do": do, **more}) as executor:
        events_of(executor, "fault")
        assert not within(0, lambda: state_of(before.pid) not in {"", "Z"}), "it is gone"
        assert node.exit() is None, "which the run expects"
        events_of(executor, "cure")
        assert node.main_process.pid != before.pid
        assert within(10, lambda: answers(node))
        restarted = node.main_process.pid
    node.kill()  # the thread that started it has ended, and it with it
    node.start()
    assert state_of(restarted) in {"", "Z"}


@needs_groups
def test_starvation_limits_processor_time_and_is_undone(node: NodeUnderFaults) -> None:
    with executing(node, {"at": SOON, "do": "cpu", "with": {"share": 0.05}}) as executor:
        (fault,) = events_of(executor, "fault")
        assert fault.detail["means"].startswith("control group")
        (group,) = {path.resolve() for path in left_groups(os.getpid())}
        assert str(node.main_process.pid) in (group / "cgroup.procs").read_text().split()
        quota = next(path for path in (group / "cpu.cfs_quota_us", group / "cpu.max") if path.exists())
        assert quota.read_text().split()[0] == "5000"
        executor.close()
    assert left_groups(os.getpid()) == []


@needs_groups
def test_memory_is_limited_and_the_limit_is_removed(node: NodeUnderFaults) -> None:
    with executing(node, {"at": SOON, "do": "memory", "with": {"limit": "512MiB"}}) as executor:
        events_of(executor, "fault")
        (group,) = left_groups(os.getpid())
        limit = next(path for path in (group / "memory.limit_in_bytes", group / "memory.max") if path.exists())
        assert int(limit.read_text()) == 512 * 2**20
        executor.close()
    assert left_groups(os.getpid()) == []


def test_without_control_groups_the_substitutes_work_and_say_so(node: NodeUnderFaults) -> None:
    pid = node.main_process.pid
    starve, settings = Starve(may_group=False), CpuSettings(0.5)
    cure = starve.prepare(node, settings)
    assert "substitute" in starve.apply(node, settings, cure)
    assert within(5, lambda: state_of(pid) == "T")
    assert within(5, lambda: state_of(pid) != "T")
    starve.end(node, settings, cure, final=False)
    assert state_of(pid) != "T"
    limit, memory = LimitMemory(may_group=False), MemorySettings(Size(2**40))
    before = resource.prlimit(pid, resource.RLIMIT_AS)
    cure = limit.prepare(node, memory)
    assert "RLIMIT_AS" in limit.apply(node, memory, cure)
    assert resource.prlimit(pid, resource.RLIMIT_AS)[0] == 2**40
    limit.end(node, memory, cure, final=False)
    assert resource.prlimit(pid, resource.RLIMIT_AS) == before


def test_a_group_of_version_2_has_the_files_of_version_2(tmp_path: Path) -> None:
    # No machine of ours has processor time in version 2: the files are those of the kernel's documentation.
    hierarchy = Hierarchy(tmp_path, 2)
    make_group(tmp_path / "group", hierarchy, "cpu", cpu_files(hierarchy, 0.25), [4711])
    assert (tmp_path / "cgroup.subtree_control").read_text() == "+cpu"
    assert (tmp_path / "group" / "cpu.max").read_text() == "25000 100000"
    assert (tmp_path / "group" / "cgroup.procs").read_text() == "4711"
    assert memory_files(hierarchy, 2**30) == {"memory.max": str(2**30)}


def test_descriptors_run_out_and_come_back(node: NodeUnderFaults) -> None:
    pid = node.main_process.pid
    before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    with executing(node, {"at": SOON, "do": "descriptors", "with": {"limit": 0}}) as executor:
        events_of(executor, "fault")
        assert resource.prlimit(pid, resource.RLIMIT_NOFILE)[0] == 0
        assert not answers(node), "it cannot accept a connection"
        executor.close()
    assert resource.prlimit(pid, resource.RLIMIT_NOFILE) == before
    assert within(10, lambda: answers(node))


@needs_root
@pytest.mark.skipif(bool(DISCONNECT.why_not(NoSettings())), reason="no ss")
def test_connections_are_reset_and_new_ones_are_served(node: NodeUnderFaults) -> None:
    with connected(node) as client, executing(node, {"at": SOON, "do": "disconnect"}) as executor:
        (fault,) = events_of(executor, "fault")
        client.settimeout(5)
        with pytest.raises(ConnectionResetError):
            client.recv(1)
        assert int(fault.detail["means"].split()[0]) >= 1
    assert within(10, lambda: answers(node))


def test_a_command_runs_where_it_is_allowed_and_its_cure_too(
    node: NodeUnderFaults, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mark = tmp_path / "mark"
    make = f"import os, pathlib; pathlib.Path({str(mark)!r}).write_text(os.environ[{NODE_VARIABLE!r}])"
    remove = f"import pathlib; pathlib.Path({str(mark)!r}).unlink()"
    settings = {"run": [sys.executable, "-c", make], "cure": [sys.executable, "-c", remove]}
    fault = {"at": SOON, "do": "command", "with": settings}
    command = action_of("command")
    monkeypatch.delenv(ALLOWED, raising=False)
    assert ALLOWED in command.why_not(command.settings_of(settings))
    monkeypatch.setenv(ALLOWED, "1")
    assert not command.why_not(command.settings_of(settings))
    with executing(node, fault) as executor:
        events_of(executor, "fault")
        assert mark.read_text() == "system"
        executor.close()
    assert not mark.exists()


def test_a_command_that_hangs_or_fails_is_a_failed_fault(node: NodeUnderFaults) -> None:
    hanging = {"run": [sys.executable, "-c", "import time; time.sleep(60)"], "timeout": "200ms"}
    failing = {"run": [sys.executable, "-c", "import sys; sys.exit('broken')"]}
    faults = [{"at": SOON, "do": "command", "with": each} for each in (hanging, failing)]
    with executing(node, *faults) as executor:
        reasons = " ".join(event.detail["reason"] for event in events_of(executor, "fault failed", 2))
    assert "did not end within 0.2 s" in reasons
    assert "exit code 1: broken" in reasons


def test_an_unknown_action_or_setting_is_one_sentence() -> None:
    with pytest.raises(ConfigError, match="no action is called 'puase'; did you mean 'pause'"):
        action_of("puase")
    with pytest.raises(ConfigError, match="settings of cpu: share"):
        action_of("cpu").settings_of({"chare": 1})
    with pytest.raises(ConfigError, match="at least 4MiB"):
        action_of("memory").settings_of({"limit": 3})


@pytest.mark.parametrize("name", ACTIONS)
def test_every_action_has_the_name_that_it_is_registered_under(name: str) -> None:
    action = action_of(name)
    assert action.name == name
    assert action.summary
