"""Does a run know a node that it ended itself from one that failed, and name a fault that could not be caused?"""

import contextlib
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from broken_nodes import state_of, within
from crescendo.control.conductor.commands import RecordEvent
from crescendo.faults.command import ALLOWED
from crescendo.model.experiment_file import experiment_from
from crescendo.processes.die_with_parent import die_with_parent
from crescendo.run.fault_control import FaultControl
from crescendo.run.planning import SystemUnderTest
from crescendo.systems.instance import RunningInstance, start
from crescendo.systems.registry import system_of


@pytest.fixture
def instance(tmp_path: Path) -> Iterator[RunningInstance]:
    started = start(
        system_of("loopback"), {}, directory=tmp_path / "system", on_fork=die_with_parent(), stop_grace_s=2
    )  # fmt: skip
    yield started
    started.stop()


@contextlib.contextmanager
def controlled(instance: RunningInstance, **fault: object) -> Iterator[tuple[FaultControl, SystemUnderTest]]:
    document = {"phases": {"warmup": 0}, "faults": [{"at": 0, **fault}]}
    with contextlib.ExitStack() as stack:
        control = FaultControl(experiment_from(document, default_name="x"), stack)
        system = SystemUnderTest(instance.endpoints, instance.pid, instance.exit, instances={"system": instance})
        yield control, control.aim(system, stack, {})


def await_event(control: FaultControl, kind: str) -> RecordEvent:
    found: list[RecordEvent] = []

    def has_happened() -> bool:
        found.extend(control.take_events())
        return any(event.kind == kind for event in found)

    assert within(30, has_happened), found
    return next(event for event in found if event.kind == kind)


def test_a_node_that_a_fault_killed_has_not_failed(instance: RunningInstance) -> None:
    with controlled(instance, do="kill") as (control, system):
        control.arm(time.monotonic_ns())
        await_event(control, "fault")
        assert instance.exit() is not None
        assert system.exit() is None
        assert not control.failure


def test_a_node_that_ends_by_itself_has_failed(instance: RunningInstance) -> None:
    with controlled(instance, do="pause") as (_, system):
        assert system.exit() is None
        instance.crash()
        ended = system.exit()
    assert ended is not None
    assert "SIGKILL" in ended.how


def test_a_run_that_ends_does_not_wait_for_a_node_to_start(instance: RunningInstance) -> None:
    with controlled(instance, do="kill", **{"for": "1ms"}) as (control, _):
        control.arm(time.monotonic_ns())
        await_event(control, "fault")
        began_s = time.monotonic()
        control.close()
        assert time.monotonic() - began_s < 10
        assert await_event(control, "cure")
    assert within(10, lambda: state_of(instance.main_process.pid) in {"", "Z"})


def test_a_fault_that_could_not_be_caused_is_the_reason_of_the_run(
    instance: RunningInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(ALLOWED, "1")
    settings = {"run": [sys.executable, "-c", "import sys; sys.exit(3)"]}
    with controlled(instance, do="command", **{"with": settings}) as (control, _):
        control.arm(time.monotonic_ns())
        await_event(control, "fault failed")
    assert control.failure.startswith("fault failed: command on system:")
    assert "exit code 3" in control.failure
