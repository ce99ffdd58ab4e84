"""Does everything that happens in a run reach its observers, and may each of them stop it?"""

import inspect
from typing import Any

import pytest

from crescendo.model.experiment_file import experiment_from
from crescendo.run import session
from crescendo.run.interruption import Interruption
from crescendo.run.observer import ObserverGroup, RunObserver
from crescendo.run.result import RunResult

METHODS = [name for name, _ in inspect.getmembers(RunObserver, inspect.isfunction) if not name.startswith("_")]


class Everything(RunObserver):
    """Notes which of its methods were called, whatever RunObserver offers."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, Any]] = []

    def __getattribute__(self, name: str) -> Any:
        if name not in METHODS:
            return super().__getattribute__(name)
        return lambda *arguments: self.calls.append((name, *arguments))


def _call_all(observer: RunObserver) -> list[tuple[str, ...]]:
    expected = []
    for name in METHODS:
        arguments = ["x"] * (len(inspect.signature(getattr(RunObserver, name)).parameters) - 1)
        getattr(observer, name)(*arguments)
        expected.append((name, *arguments))
    return expected


def test_a_group_forwards_every_method_to_each_of_its_observers() -> None:
    first, second = Everything(), Everything()
    expected = _call_all(ObserverGroup(first, second))
    assert len(expected) >= 9
    assert first.calls == second.calls == expected


@pytest.mark.parametrize("stopping", [False, True])
def test_a_run_forwards_every_method_to_the_observer_of_its_caller(
    monkeypatch: pytest.MonkeyPatch, stopping: bool
) -> None:
    """Also a warning that the recording is not complete, which only `execute` can give."""
    expected, answers = [], []

    def execute(*_: Any, observer: RunObserver, **__: Any) -> RunResult:
        expected.extend(_call_all(observer))
        answers.append(observer.interrupted())
        raise KeyboardInterrupt

    monkeypatch.setattr(session, "execute", execute)
    experiment = experiment_from({"name": "x", "system": {"kind": "loopback"}, "workload": {"rate": 1}})
    caller, interruption = Everything(), Interruption()
    interruption.asked = stopping
    with pytest.raises(KeyboardInterrupt):
        session.run(experiment, observer=caller, analyze=False, interruption=interruption)
    assert caller.calls[: len(METHODS)] == expected
    assert answers == [stopping]
