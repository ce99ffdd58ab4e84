"""How does a run end when the user presses Ctrl-C?

The first SIGINT or SIGTERM asks the run to stop, so that its recording is sealed; the second aborts. Installed only on
request: signals belong to the program, not to a library.
"""

import signal
from types import FrameType, TracebackType
from typing import Any, Self

from crescendo.run.observer import RunObserver

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interruption(RunObserver):
    """Handles Ctrl-C and SIGTERM while it is entered: an observer that asks to stop. Main thread only."""

    def __init__(self) -> None:
        self.asked = False
        self._before: dict[signal.Signals, Any] = {}

    def interrupted(self) -> bool:
        return self.asked

    def raise_at_once(self) -> None:
        """From here on there is nothing left to seal: the next signal raises KeyboardInterrupt."""
        for number in _SIGNALS:
            signal.signal(number, signal.default_int_handler)

    def __enter__(self) -> Self:
        self._before = {number: signal.signal(number, self._ask) for number in _SIGNALS}
        return self

    def __exit__(self, kind: type[BaseException] | None, err: BaseException | None, tb: TracebackType | None) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _ask(self, _number: int, _frame: FrameType | None) -> None:
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True
