"""When is the next look due, and what becomes of a look?

Looks happen on a fixed grid from the start of the run, so that they never drift; a look that takes longer than its
slot costs the slots it covered, never a second request beside it. Each look runs in a thread of its own, because a
system that hangs must not take the inspector's lease with it. A failed look is an event, not an end: the system's
silence is a result.
"""

import json
import threading
import time

from crescendo.inspectors.base import Inspection, Inspector
from crescendo.model.errors import CrescendoError
from crescendo.record.schema import EVENTS, READINGS
from crescendo.record.writer import RowSink

SELF = "inspector"


class _Attempt(threading.Thread):
    """One look under way."""

    def __init__(self, inspector: Inspector) -> None:
        super().__init__(name="look", daemon=True)
        self._inspector = inspector
        self.begun_ns = time.monotonic_ns()
        self.ended_ns = 0
        self.inspect: Inspection | None = None
        self.failure = ""

    def run(self) -> None:
        try:
            self.inspect = self._inspector.inspect()
        except CrescendoError as err:
            self.failure = str(err)
        except Exception as err:  # a system can answer with anything; what we did not foresee is a failed look too
            self.failure = f"{type(err).__name__}: {err}"
        self.ended_ns = time.monotonic_ns()


class Watch:
    """Looks at one system again and again, and records what it sees."""

    def __init__(self, inspector: Inspector, source: str, every_ns: int, log: RowSink) -> None:
        self._inspector = inspector
        self._source = source
        self._every_ns = every_ns
        self._log = log
        self._attempt: _Attempt | None = None
        self._slot = -1  # the last one that was used or missed
        self._failing = ""
        self._failing_since_ns = 0
        self._texts: dict[tuple[str, str], str] = {}
        self._cpu_s = time.process_time()
        self.looks = 0
        self.failed = 0
        self.missed = 0

    def inspect_once(self, timeout_s: float) -> str:
        """Look now, and say why it failed; empty when it did not."""
        self._attempt = attempt = _Attempt(self._inspector)
        attempt.start()
        attempt.join(timeout_s)
        if attempt.is_alive():
            return f"the system did not answer within {timeout_s:g} s"
        self._attempt = None
        return attempt.failure

    def step(self, t0_ns: int, now_ns: int) -> None:
        """Take in a look that has ended, and begin the one that is due."""
        if self._attempt is not None and not self._attempt.is_alive():
            attempt, self._attempt = self._attempt, None
            self._take(attempt)
        slot = (now_ns - t0_ns) // self._every_ns
        if slot <= self._slot:
            return
        self.missed += slot - self._slot - 1
        self._slot = slot
        if self._attempt is not None:
            self.missed += 1
            self._fail(f"no answer for {(now_ns - self._attempt.begun_ns) / 1e9:.1f} s", self._attempt.begun_ns)
            return
        self._attempt = _Attempt(self._inspector)
        self._attempt.start()

    def close(self, timeout_s: float) -> None:
        """Wait a moment for the look under way, and let go."""
        if self._attempt is not None:
            self._attempt.join(timeout_s)
            if not self._attempt.is_alive():
                self._take(self._attempt)
                self._inspector.close()
            return  # a look that hangs still holds its connection; the process ends anyway
        self._inspector.close()

    def _take(self, attempt: _Attempt) -> None:
        if attempt.inspect is None:
            self.failed += 1
            self._fail(attempt.failure, attempt.begun_ns)
            return
        self.looks += 1
        if self._failing:
            seconds = (attempt.begun_ns - self._failing_since_ns) / 1e9
            self._event(attempt.begun_ns, "look-recovered", {"after_s": round(seconds, 3), "reason": self._failing})
            self._failing = ""
        for entity, metric, value in attempt.inspect.readings:
            self._reading(attempt.begun_ns, entity, metric, value)
        self._cost(attempt)
        self._remember(attempt)

    def _cost(self, attempt: _Attempt) -> None:
        """What looking cost ourselves, since the look before."""
        cpu_s, self._cpu_s = self._cpu_s, time.process_time()
        self._reading(attempt.begun_ns, SELF, "look_seconds", (attempt.ended_ns - attempt.begun_ns) / 1e9)
        self._reading(attempt.begun_ns, SELF, "cpu_seconds", self._cpu_s - cpu_s)

    def _remember(self, attempt: _Attempt) -> None:
        """Texts are written down when they change."""
        if attempt.inspect is None:
            return
        changed: dict[str, dict[str, str]] = {}
        for (entity, attribute), text in attempt.inspect.texts.items():
            if self._texts.get((entity, attribute)) != text:
                changed.setdefault(entity, {})[attribute] = text
        self._texts.update(attempt.inspect.texts)
        if changed:
            self._event(attempt.begun_ns, "texts", changed)

    def _fail(self, reason: str, t_ns: int) -> None:
        if not self._failing:
            self._failing_since_ns = t_ns
            self._event(t_ns, "look-failed", {"reason": reason})
        self._failing = reason

    def _reading(self, t_ns: int, entity: str, metric: str, value: float) -> None:
        self._log.append(READINGS, 1, t_ns, self._source, entity, metric, value)

    def _event(self, t_ns: int, kind: str, detail: object) -> None:
        self._log.append(EVENTS, 1, t_ns, self._source, kind, json.dumps(detail))
