"""What does an engine report to, and what asks it to stop?"""

from typing import Protocol

from crescendo.control.notes import Statistics


class Control(Protocol):
    """The process around an engine."""

    def should_stop(self) -> bool: ...

    def report(self, statistics: Statistics) -> None: ...

    def event(self, kind: str, detail: dict[str, object]) -> None: ...
