"""Faults planted into streams of messages with known times: which outage, which messages and which times are theirs?

No Spark, no recording; tests/system/test_faulty_runs.py has whole runs.
"""

import json
from typing import Any

import numpy as np
import pytest

from crescendo.pipeline.behaviour.outages import outages
from crescendo.pipeline.behaviour.recorded_events import FaultWindow, fault_windows
from crescendo.pipeline.behaviour.recovery import fault_effects, missing_at_earlier_rate, recovery_rows
from crescendo.record.manifest import Phase
from crescendo.record.tables import RecoveryRow
from crescendo.record.timeline import RunTimeline
from test_behaviour_outages import CONNECTIONS, MS, ORIGIN, SECOND, TICK, TICKS, interrupted, schedule, stream

END = ORIGIN + 25 * SECOND
TIMELINE = RunTimeline.of([Phase("measure", ORIGIN, ORIGIN + 20 * SECOND), Phase("drain", ORIGIN + 20 * SECOND, END)])


def event(kind: str, at_ns: int, **detail: Any) -> dict[str, Any]:
    return {"t_ns": ORIGIN + at_ns, "kind": kind, "source": "conductor", "detail": json.dumps(detail)}


def fault(number: int, at_ns: int, end_ns: int | None) -> list[dict[str, Any]]:
    detail = {"fault": number, "do": "kill", "on": "router2", "planned_ns": ORIGIN + at_ns - MS}
    cures = [] if end_ns is None else [event("cure", end_ns, **detail)]
    return [event("fault", at_ns, **detail), *cures]


def rows(events: list[dict[str, Any]], due_ns: np.ndarray, received_ns: np.ndarray, lost: int = 0) -> list[RecoveryRow]:
    streams = [stream(due_ns, received_ns)]
    found = outages(streams, {0: lost}, TICKS, CONNECTIONS, lost_aside=True)
    effects = fault_effects(fault_windows(events), found, streams, TICKS, END)
    counts = {0: {"lost": 3, "lost acknowledged": 1, "shed": 4, "duplicated": 2, "redelivered": 5, "reordered": 6}}
    return recovery_rows(effects, counts, {0: 10}, events, TIMELINE, [])


def test_a_fault_has_the_times_of_its_outage_counted_from_its_start() -> None:
    due_ns = schedule(20)
    received_ns = interrupted(due_ns, 10 * SECOND, 12 * SECOND, SECOND)
    events = fault(0, 10 * SECOND + 2 * MS, 11 * SECOND)
    (row,) = rows([*events, event("disconnect", 10 * SECOND + 7 * MS)], due_ns, received_ns)
    assert (row.action, row.target) == ("kill", "router2")
    assert row.start_ns - row.planned_ns == MS
    assert row.end_ns == ORIGIN + 11 * SECOND
    assert row.detected_ns == 5 * MS
    assert row.outage_ns == 12 * SECOND - int(received_ns[received_ns <= 10 * SECOND].max())
    assert row.resumed
    assert row.recovered_ns == pytest.approx(2 * SECOND, abs=2 * TICK)
    assert row.caught_up_ns == pytest.approx(3 * SECOND, abs=2 * TICK)
    assert (row.lost, row.lost_acknowledged, row.duplicated, row.redelivered, row.reordered) == (3, 1, 2, 5, 6)
    assert row.never_offered == 14, "shed, and not offered at all"
    assert row.start_ns + row.caught_up_ns <= row.until_ns <= row.start_ns + row.caught_up_ns + 2 * TICK


def test_lost_messages_do_not_keep_a_system_from_having_caught_up() -> None:
    due_ns = schedule(20)
    received_ns = interrupted(due_ns, 10 * SECOND, 12 * SECOND, SECOND)
    kept = np.ones(due_ns.size, bool)
    kept[1000:1003] = False
    (row,) = rows(fault(0, 10 * SECOND, 11 * SECOND), due_ns, received_ns[kept], lost=3)
    assert row.caught_up_ns == pytest.approx(3 * SECOND, abs=2 * TICK)


def test_a_fault_that_stops_nothing_has_no_outage() -> None:
    due_ns = schedule(20)
    (row,) = rows(fault(0, 10 * SECOND, 11 * SECOND), due_ns, due_ns + MS)
    assert (row.outage_ns, row.recovered_ns, row.caught_up_ns, row.detected_ns) == (None, None, None, None)
    assert row.until_ns == ORIGIN + 11 * SECOND + TICK


def test_an_outage_that_never_ends_has_no_times() -> None:
    due_ns = schedule(20)
    (row,) = rows(fault(0, 10 * SECOND, None), due_ns, (due_ns + MS)[due_ns < 10 * SECOND])
    assert not row.resumed
    assert row.outage_ns == pytest.approx(10 * SECOND, abs=2 * TICK)
    assert (row.end_ns, row.recovered_ns, row.until_ns) == (None, None, END)


def test_the_times_of_a_slice_are_those_of_its_subscriptions() -> None:
    due_ns = schedule(20)
    streams = [stream(due_ns, interrupted(due_ns, 10 * SECOND, 12 * SECOND, SECOND))]
    found = outages(streams, {}, TICKS, CONNECTIONS, lost_aside=True)
    (effect,) = fault_effects(fault_windows(fault(0, 10 * SECOND, 11 * SECOND)), found, streams, TICKS, END)
    (run,) = recovery_rows([effect], {}, {}, [], TIMELINE, [])
    assert run.outage_ns is not None
    assert effect.row_of(run, {found[0].subscription}) == run
    other = effect.row_of(run, {"queue://other"})
    assert (other.outage_ns, other.recovered_ns, other.caught_up_ns, other.resumed) == (None, None, None, True)
    assert (other.start_ns, other.lost) == (run.start_ns, run.lost)


def test_two_faults_share_neither_outages_nor_messages() -> None:
    due_ns = schedule(20)
    received_ns = interrupted(due_ns, 5 * SECOND, 6 * SECOND, SECOND // 2)
    received_ns = np.where(due_ns > 10 * SECOND, interrupted(due_ns, 12 * SECOND, 15 * SECOND, SECOND), received_ns)
    events = [*fault(0, 5 * SECOND, 6 * SECOND), *fault(1, 12 * SECOND, 13 * SECOND)]
    first, second = rows(events, due_ns, received_ns)
    assert first.outage_ns == pytest.approx(SECOND, abs=TICK)
    assert second.outage_ns == pytest.approx(3 * SECOND, abs=TICK)
    assert first.until_ns <= second.start_ns
    assert (first.lost, second.lost) == (3, 0)


def test_the_messages_of_a_fault_begin_with_the_oldest_one_in_the_system() -> None:
    due_ns = schedule(20)
    streams = [stream(due_ns, due_ns + 4 * SECOND)]  # four seconds of backlog
    window = FaultWindow(0, "kill", "system", "", 0, ORIGIN + 10 * SECOND, ORIGIN + 11 * SECOND)
    (effect,) = fault_effects([window], [], streams, TICKS, END)
    assert effect.span.from_ns == pytest.approx(ORIGIN + 6 * SECOND, abs=2 * TICK)


def test_unbounded_senders_did_not_offer_what_is_missing_at_their_earlier_rate() -> None:
    due_ns = schedule(20)
    blocked = (due_ns >= 10 * SECOND) & (due_ns < 12 * SECOND)
    streams = [stream(due_ns[~blocked], due_ns[~blocked] + MS)]
    found = outages(streams, {}, TICKS, CONNECTIONS)
    effects = fault_effects(fault_windows(fault(0, 10 * SECOND, 12 * SECOND)), found, streams, TICKS, END)
    assert missing_at_earlier_rate(effects, streams, TICKS, ORIGIN + 20 * SECOND)[0] == pytest.approx(200, abs=5)


def test_cures_after_the_run_and_events_of_other_tools_do_not_count() -> None:
    over = event("cure", 20 * SECOND, fault=0, final=True)
    foreign = event("fault", 3 * SECOND, reason="somebody pulled a cable")
    (window,) = fault_windows([foreign, *fault(0, 10 * SECOND, None), over])
    assert window.end_ns is None
