"""Is every stall of a loop counted, and does the clock of a loop know what it could not have seen?"""

from pathlib import Path
from typing import Any

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crescendo.load.engine import stalls
from crescendo.load.engine.loop_clock import LoopClock
from crescendo.load.engine.stalls import LONG_STALL_NS, MAX_EVENTS_PER_S, STALL_NS, StallLog, major_faults, steal_ns

MS = 1_000_000
SECOND = 1_000_000_000


class Events:
    def __init__(self) -> None:
        self.details: list[dict[str, Any]] = []
        self.log = StallLog(self.add)
        self.clock = LoopClock(SECOND, self.log)

    def add(self, kind: str, detail: dict[str, object]) -> None:
        assert kind == "stall"
        self.details.append(detail)


@given(st.lists(st.tuples(st.integers(0, 300), st.integers(1, 40)), max_size=60))
def test_no_stall_is_forgotten_and_no_second_has_too_many_events(stalls: list[tuple[int, int]]) -> None:
    events, now_ns, begins = Events(), SECOND, []
    for gap_ms, duration_ms in stalls:
        begins.append((now_ns + gap_ms * MS, duration_ms * MS))
        now_ns += (gap_ms + duration_ms) * MS
        events.log.add(now_ns, duration_ms * MS)
    events.log.close()
    durations = [duration_ns for _, duration_ns in begins]
    assert events.log.total_ns == sum(durations)
    assert sum(detail.get("total_ns", detail["duration_ns"]) for detail in events.details) == sum(durations)
    assert sum(detail.get("count", 1) for detail in events.details) == len(stalls)
    assert {(detail["from_ns"], detail["duration_ns"]) for detail in events.details} <= set(begins)
    short = [d for d in events.details if d["duration_ns"] < LONG_STALL_NS or "count" in d]
    assert len(short) <= (MAX_EVENTS_PER_S + 1) * (now_ns // SECOND)
    assert sum(duration_ns >= LONG_STALL_NS for duration_ns in durations) <= len(events.details)


def test_what_the_kernel_tells_is_counted_from_the_last_stall(monkeypatch: pytest.MonkeyPatch) -> None:
    told = {"steal_ns": 10**12, "major_faults": 500}
    monkeypatch.setattr(stalls, "steal_ns", lambda: told["steal_ns"])
    monkeypatch.setattr(stalls, "major_faults", lambda: told["major_faults"])
    events, now_ns = Events(), 2 * SECOND
    for stolen_ns, faults, duration_ns in ((20 * MS, 1, 5 * MS), (0, 0, 5 * MS), (70 * MS, 12, 2500 * MS)):
        told["steal_ns"] += stolen_ns
        told["major_faults"] += faults
        now_ns += duration_ns
        events.log.add(now_ns, duration_ns)
    assert [(detail["steal_ns"], detail["major_faults"]) for detail in events.details] == [
        (20 * MS, 1), (0, 0), (70 * MS, 12)
    ]  # fmt: skip
    told["steal_ns"] += 5 * MS
    events.log.tick(now_ns + SECOND)
    events.log.add(now_ns + 2 * SECOND - 1, MS)
    assert events.details[-1]["steal_ns"] == 0, "it was over a second before"


def test_the_kernel_reports_steal_and_major_faults() -> None:
    """By psutil, which rounds to a hundredth of a second and reads a little later."""
    before_s = psutil.cpu_times().steal
    assert before_s <= steal_ns() / SECOND <= psutil.cpu_times().steal + 0.011
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    assert int(fields[9]) <= major_faults() <= int(fields[9]) + 1000


def test_waiting_as_long_as_meant_is_not_a_stall() -> None:
    events = Events()
    events.clock.woken(SECOND + 100_000, 5 * MS, SECOND + 5 * MS, found=False)
    events.clock.woken(SECOND + 8 * MS, 0, SECOND + 8 * MS, found=True, paused_ns=3 * MS)
    assert events.details == []


@pytest.mark.parametrize(("worked_ms", "waited_ms"), [(3, 5), (0, 8), (1, 7)])
def test_work_and_a_wait_that_lasts_too_long_are_stalls(worked_ms: int, waited_ms: int) -> None:
    events = Events()
    before_ns = SECOND + worked_ms * MS
    events.clock.woken(before_ns, 5 * MS, before_ns + waited_ms * MS, found=True)
    assert [detail["duration_ns"] for detail in events.details] == [3 * MS]
    assert events.clock.is_overdue == (waited_ms > 5 + STALL_NS // MS)


def test_what_a_wait_finds_was_not_there_when_it_began() -> None:
    clock = Events().clock
    clock.woken(SECOND + MS, 5 * MS, SECOND + 4 * MS, found=True)
    assert clock.looked_ns == SECOND + MS
    clock.woken(SECOND + 6 * MS, 5 * MS, SECOND + 6 * MS + 1000, found=True)  # it may have been there all the time
    assert clock.looked_ns == SECOND + 4 * MS


def test_an_interrupted_wait_that_found_nothing_did_not_look() -> None:
    """Stopped and continued, a wait ends without looking again. The next one returns at once with what was there."""
    clock = Events().clock
    stopped_ns, continued_ns = SECOND + MS, SECOND + 500 * MS
    clock.woken(stopped_ns, 5 * MS, continued_ns, found=False)
    clock.woken(continued_ns + 10_000, 5 * MS, continued_ns + 20_000, found=True)
    assert clock.looked_ns == stopped_ns
    assert clock.is_overdue
    clock.woken(continued_ns + MS, 5 * MS, continued_ns + 3 * MS, found=True)
    assert (clock.looked_ns, clock.is_overdue) == (continued_ns + MS, False)


@pytest.mark.parametrize("held_up_ms", [0.01, 3, 80])
def test_after_an_interrupted_wait_a_look_finds_what_was_there_however_long_it_takes(held_up_ms: float) -> None:
    clock = Events().clock
    stopped_ns, continued_ns = SECOND + MS, SECOND + 500 * MS
    clock.woken(stopped_ns, 5 * MS, continued_ns, found=False)
    wait_ns = clock.wait_ns(continued_ns, 50 * MS)
    assert wait_ns == 0, "it would not be known whether the messages came while it lasted"
    woken_ns = continued_ns + int(held_up_ms * MS)
    clock.woken(continued_ns, wait_ns, woken_ns, found=True)
    assert clock.looked_ns == stopped_ns
    assert clock.is_overdue
    assert clock.wait_ns(woken_ns, 50 * MS) == 50 * MS


@pytest.mark.parametrize("held_up_ms", [0.01, 3, 80])
def test_what_came_while_a_pass_was_stopped_counts_from_before_it(held_up_ms: float) -> None:
    clock = Events().clock
    clock.woken(SECOND, 5 * MS, SECOND + 4 * MS, found=True)
    continued_ns = SECOND + 500 * MS
    assert clock.wait_ns(continued_ns, 50 * MS) == 0
    assert clock.wait_ns(continued_ns, 50 * MS, paused_ns=496 * MS) == 50 * MS  # it was meant to sleep
    clock.woken(continued_ns, 0, continued_ns + int(held_up_ms * MS), found=True)
    assert clock.looked_ns == SECOND + 4 * MS
    assert clock.overdue_ns == pytest.approx((496 + held_up_ms) * MS)


def test_after_an_interrupted_wait_a_look_in_vain_shows_that_nothing_was_there() -> None:
    clock = Events().clock
    clock.woken(SECOND + MS, 5 * MS, SECOND + 500 * MS, found=False)
    clock.woken(SECOND + 500 * MS, 0, SECOND + 500 * MS + 5000, found=False)
    assert clock.wait_ns(SECOND + 501 * MS, 50 * MS) == 50 * MS
    clock.woken(SECOND + 501 * MS, 50 * MS, SECOND + 520 * MS, found=True)
    assert clock.looked_ns == SECOND + 501 * MS
    assert not clock.is_overdue


def test_a_socket_became_writable_when_the_wait_ended_unless_we_were_held_up() -> None:
    clock = Events().clock
    clock.woken(SECOND, 5 * MS, SECOND + 4 * MS, found=True)
    assert clock.writable_ns == SECOND + 4 * MS
    clock.woken(SECOND + 4 * MS, 5 * MS, SECOND + 400 * MS, found=True)
    assert clock.writable_ns == SECOND + 4 * MS
