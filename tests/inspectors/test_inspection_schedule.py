"""Do inspections keep their schedule, one at a time, and is a silent system an event?"""

import json
import threading
import time
from typing import Any

from crescendo.inspectors.base import Inspection, Reading
from crescendo.inspectors.inspection_schedule import Watch
from crescendo.model.errors import PeerError
from crescendo.record.schema import EVENTS, READINGS

MS = 1_000_000
EVERY_NS = 100 * MS
T0_NS = 10**12


class Log:
    def __init__(self) -> None:
        self.rows: list[tuple[Any, ...]] = []

    def append(self, table: str, rows: int, *columns: object) -> None:
        self.rows.append((table, *columns))

    def tick(self, now_ns: int) -> None:
        pass

    def events(self) -> list[tuple[str, Any]]:
        return [(row[3], json.loads(row[4])) for row in self.rows if row[0] == EVENTS]

    def readings(self, entity: str) -> list[float]:
        return [row[5] for row in self.rows if row[0] == READINGS and row[3] == entity]


class Scripted:
    """Returns the answers of a list; exceptions are raised, events are waited for."""

    def __init__(self, answers: list[Any]) -> None:
        self.answers = answers
        self.at_once = 0
        self.most_at_once = 0
        self.closed = False

    def inspect(self) -> Inspection:
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        answer = self.answers.pop(0) if self.answers else Inspection()
        try:
            if isinstance(answer, threading.Event):
                answer.wait(5)
                return Inspection()
            if isinstance(answer, Exception):
                raise answer
            assert isinstance(answer, Inspection)
            return answer
        finally:
            self.at_once -= 1

    def close(self) -> None:
        self.closed = True


def watched(answers: list[Any]) -> tuple[Watch, Log, Scripted]:
    log, inspector = Log(), Scripted(answers)
    return Watch(inspector, "inspector-x", EVERY_NS, log), log, inspector


def step(watch: Watch, now_ns: int) -> None:
    """One step of the schedule, with time for an inspection to end unless it hangs."""
    watch.step(T0_NS, now_ns)
    attempt = watch._attempt
    if attempt is not None:
        attempt.join(0.2)


def test_inspections_stay_on_the_grid_however_irregular_the_steps() -> None:
    watch, _, _ = watched([])
    for offset in (0, 30, 99, 101, 130, 199, 200, 299, 350):
        step(watch, T0_NS + offset * MS)
    watch.close(1)
    assert watch.inspections == 4  # slots 0, 1, 2 and 3
    assert watch.missed == 0


def test_a_slow_inspection_costs_slots_and_never_causes_a_second_request() -> None:
    gate = threading.Event()
    watch, log, inspector = watched([gate])
    for offset in (0, 100, 200, 300):
        step(watch, T0_NS + offset * MS)
    gate.set()
    time.sleep(0.05)
    step(watch, T0_NS + 350 * MS)
    step(watch, T0_NS + 400 * MS)
    watch.close(1)
    assert inspector.most_at_once == 1
    assert (watch.inspections, watch.missed) == (2, 3)
    kinds = [kind for kind, _ in log.events()]
    assert kinds == ["look-failed", "look-recovered"]


def test_a_failing_system_is_one_event_with_its_reason_and_one_on_recovery() -> None:
    answers: list[Any] = [Inspection(), PeerError("500"), PeerError("502"), ValueError("what is this"), Inspection()]
    watch, log, _ = watched(answers)
    for slot in range(5):
        step(watch, T0_NS + slot * EVERY_NS)
    watch.close(1)
    assert (watch.inspections, watch.failed) == (2, 3)
    assert log.events()[0] == ("look-failed", {"reason": "500"})
    kind, detail = log.events()[1]
    assert (kind, detail["reason"]) == ("look-recovered", "ValueError: what is this")


def test_every_number_is_a_reading_and_texts_are_recorded_when_they_change() -> None:
    inspections = [
        Inspection([Reading("queue/a", "depth", 7.0)], {("queue/a", "state"): "running"}),
        Inspection([Reading("queue/a", "depth", 9.5)], {("queue/a", "state"): "running"}),
        Inspection([], {("queue/a", "state"): "paused"}),
    ]
    watch, log, _ = watched(list(inspections))
    for slot in range(3):
        step(watch, T0_NS + slot * EVERY_NS)
    watch.close(1)
    assert log.readings("queue/a") == [7.0, 9.5]
    assert log.events() == [
        ("texts", {"queue/a": {"state": "running"}}), ("texts", {"queue/a": {"state": "paused"}}),
    ]  # fmt: skip


def test_the_last_inspection_is_reported_as_its_highest_gauges() -> None:
    """Other readings are in the recording only, and a failed inspection changes nothing."""
    found = [
        Reading("queue/a", "MessageCount", 7.0), Reading("queue/b", "MessageCount", 9.0),
        Reading("queue/c", "MessageCount", float("nan")), Reading("process", "cpu_cores", 0.5),
        Reading("broker", "Uptime", 1e6),
    ]  # fmt: skip
    watch, _, _ = watched([Inspection(found), PeerError("gone")])
    for number in range(3):
        step(watch, T0_NS + number * EVERY_NS)
    assert watch.gauges == {"depth": 9.0, "cpu": 0.5}


def test_an_inspection_records_its_own_cost() -> None:
    watch, log, inspector = watched([])
    step(watch, T0_NS)
    watch.close(1)
    metrics = {row[4] for row in log.rows if row[3] == "inspector"}
    assert metrics == {"look_seconds", "cpu_seconds"}
    assert all(value >= 0 for value in log.readings("inspector"))
    assert inspector.closed


def test_the_first_inspection_reports_why_a_system_cannot_be_inspected() -> None:
    watch, _, _ = watched([PeerError("401 Unauthorized")])
    assert watch.inspect_once(1) == "401 Unauthorized"
    hanging, _, _ = watched([threading.Event()])
    assert "within 0.1 s" in hanging.inspect_once(0.1)
