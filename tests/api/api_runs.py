"""The run that the tests here share, which is that of an example; and an observer that keeps what it sees."""

import importlib.util
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType

import crescendo
from crescendo.control.conductor.commands import RecordEvent
from crescendo.control.conductor.state import RunState

EXAMPLES = Path(__file__).parents[2] / "examples"
SENT = 1250
"""Messages of the example: 500 per second for 2.5 s."""

SHORT = crescendo.experiment_from(
    {
        "name": "short",
        "workload": {"senders": 1, "receivers": 1, "rate": 200, "size": 256},
        "phases": {"warmup": "0s", "measure": "200ms", "drain": "5s"},
    }
)


def load_example(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@dataclass
class Seen(crescendo.RunObserver):
    """Keeps what it is called with."""

    steps: list[str] = field(default_factory=list)
    events: list[str] = field(default_factory=list)
    messages: list[int] = field(default_factory=list)
    recorded: list[crescendo.RunResult] = field(default_factory=list)

    def progress(self, step: str) -> None:
        self.steps.append(step)

    def on_event(self, event: RecordEvent) -> None:
        self.events.append(event.kind)

    def on_statistics(self, state: RunState) -> None:
        self.messages.append(sum(peer.statistics.messages for peer in state.of("sender") if peer.statistics))

    def on_recorded(self, result: crescendo.RunResult) -> None:
        self.recorded.append(result)


@dataclass(frozen=True)
class ObservedRun:
    result: crescendo.RunResult
    seen: Seen
