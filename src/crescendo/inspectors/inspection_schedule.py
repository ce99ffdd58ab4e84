"""When is the next inspection due, and what happens with its result?

Inspections happen on a fixed grid from the start of the run, so that they never drift. An inspection that takes longer
than its slot uses up the slots it covers; there is never a second request beside it. Each inspection runs in a thread
of its own, because a system that hangs must not make the inspector miss its lease. A failed inspection is an event and
does not end the watch: the system's silence is a result.
"""

import json
import threading
import time

from crescendo.inspectors.base import Inspection, Inspector
from crescendo.model.errors import CrescendoError
from crescendo.model.gauges import highest_readings
from crescendo.record.schema import EVENTS, READINGS
from crescendo.record.writer import RowSink

SELF = "inspector"


class _Attempt(threading.Thread):
    """One inspection in progress."""

    def __init__(self, inspector: Inspector) -> None:
        super().__init__(name="inspection", daemon=True)
        self._inspector = inspector
        self.started_ns = time.monotonic_ns()
        self.ended_ns = 0
        self.result: Inspection | None = None
        self.failure = ""

    def run(self) -> None:
        try:
            self.result = self._inspector.inspect()
        except CrescendoError as err:
            self.failure = str(err)
        except Exception as err:  # a system can answer with anything; the unforeseen is a failed inspection, too
            self.failure = f"{type(err).__name__}: {err}"
        self.ended_ns = time.monotonic_ns()


class Watch:
    """Inspects one system periodically, and records the results."""

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
        self.gauges: dict[str, float] = {}  # gauge -> its highest reading, in the last inspection
        self.inspections = 0
        self.failed = 0
        self.missed = 0

    def inspect_once(self, timeout_s: float) -> str:
        """Inspect now, and return the reason of a failure; empty when it succeeded."""
        self._attempt = attempt = _Attempt(self._inspector)
        attempt.start()
        attempt.join(timeout_s)
        if attempt.is_alive():
            return f"the system did not answer within {timeout_s:g} s"
        self._attempt = None
        return attempt.failure

    def step(self, t0_ns: int, now_ns: int) -> None:
        """Record an inspection that has ended, and start the one that is due."""
        if self._attempt is not None and not self._attempt.is_alive():
            attempt, self._attempt = self._attempt, None
            self._record(attempt)
        slot = (now_ns - t0_ns) // self._every_ns
        if slot <= self._slot:
            return
        self.missed += slot - self._slot - 1
        self._slot = slot
        if self._attempt is not None:
            self.missed += 1
            self._fail(f"no answer for {(now_ns - self._attempt.started_ns) / 1e9:.1f} s", self._attempt.started_ns)
            return
        self._attempt = _Attempt(self._inspector)
        self._attempt.start()

    def close(self, timeout_s: float) -> None:
        """Inspect once more, or wait for the inspection in progress, both briefly, and close.

        The last inspection shows what the run leaves behind. Its failure is not recorded: the system may have ended.
        """
        if self._attempt is None and self.inspections:
            self._attempt = _Attempt(self._inspector)
            self._attempt.start()
            self._attempt.join(timeout_s)
            if self._attempt.failure:
                self._inspector.close()
                return
        if self._attempt is not None:
            self._attempt.join(timeout_s)
            if not self._attempt.is_alive():
                self._record(self._attempt)
                self._inspector.close()
            return  # a hanging inspection still holds its connection; the process ends anyway
        self._inspector.close()

    def _record(self, attempt: _Attempt) -> None:
        if attempt.result is None:
            self.failed += 1
            self._fail(attempt.failure, attempt.started_ns)
            return
        self.inspections += 1
        if self._failing:
            seconds = (attempt.started_ns - self._failing_since_ns) / 1e9
            self._event(attempt.started_ns, "look-recovered", {"after_s": round(seconds, 3), "reason": self._failing})
            self._failing = ""
        for entity, metric, value in attempt.result.readings:
            self._reading(attempt.started_ns, entity, metric, value)
        self.gauges = highest_readings(attempt.result.readings)
        self._record_cost(attempt)
        self._record_changed_texts(attempt)

    def _record_cost(self, attempt: _Attempt) -> None:
        """The cost of inspecting to ourselves, since the previous inspection."""
        cpu_s, self._cpu_s = self._cpu_s, time.process_time()
        self._reading(attempt.started_ns, SELF, "look_seconds", (attempt.ended_ns - attempt.started_ns) / 1e9)
        self._reading(attempt.started_ns, SELF, "cpu_seconds", self._cpu_s - cpu_s)

    def _record_changed_texts(self, attempt: _Attempt) -> None:
        """Texts are recorded when they change."""
        if attempt.result is None:
            return
        changed: dict[str, dict[str, str]] = {}
        for (entity, attribute), text in attempt.result.texts.items():
            if self._texts.get((entity, attribute)) != text:
                changed.setdefault(entity, {})[attribute] = text
        self._texts.update(attempt.result.texts)
        if changed:
            self._event(attempt.started_ns, "texts", changed)

    def _fail(self, reason: str, t_ns: int) -> None:
        if not self._failing:
            self._failing_since_ns = t_ns
            self._event(t_ns, "look-failed", {"reason": reason})
        self._failing = reason

    def _reading(self, t_ns: int, entity: str, metric: str, value: float) -> None:
        self._log.append(READINGS, 1, t_ns, self._source, entity, metric, value)

    def _event(self, t_ns: int, kind: str, detail: object) -> None:
        self._log.append(EVENTS, 1, t_ns, self._source, kind, json.dumps(detail))
