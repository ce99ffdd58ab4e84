"""A short experiment that any machine passes, and an observer that keeps what it sees."""

from dataclasses import dataclass, field

import crescendo
from crescendo.control.conductor.commands import RecordEvent
from crescendo.control.conductor.state import RunState

GATE = crescendo.experiment_from(
    {
        "name": "gate",
        "workload": {"senders": 1, "receivers": 1, "rate": 200, "size": 256},
        "phases": {"warmup": "200ms", "measure": "1800ms", "drain": "5s"},
        "checks": {"lost": 0, "rate": ">= 0.5 of offered"},
    }
)


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
