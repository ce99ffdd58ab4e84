"""Outages planted into streams of messages with known times; no Spark, no recording."""

import numpy as np
import pytest

from crescendo.pipeline.behaviour.backlog import SubscriptionSeries, backlog_rows, little_rows
from crescendo.pipeline.behaviour.outages import outages
from crescendo.pipeline.behaviour.ticks import Ticks
from crescendo.pipeline.source.connections import Connections
from crescendo.record.manifest import Phase
from crescendo.record.summary import Latency
from crescendo.record.tables import OutageRow

MS, SECOND = 10**6, 10**9
TICK = 100 * MS
ORIGIN = 7 * SECOND + 13
TICKS = Ticks(ORIGIN, TICK)
CONNECTIONS = Connections(("queue://q",), {0: 0}, {0: (0,)}, frozenset())


def stream(due_ns: np.ndarray, received_ns: np.ndarray, sent_ns: np.ndarray | None = None) -> SubscriptionSeries:
    """The tick counts of these messages; times are relative to the origin."""
    sent_ns = due_ns if sent_ns is None else sent_ns
    ticks = int(max(due_ns.max(), sent_ns.max(), received_ns.max(initial=0)) // TICK) + 1
    columns: dict[str, np.ndarray] = {
        name: np.zeros(ticks, np.int64) for name in SubscriptionSeries.__dataclass_fields__
    }
    for name, times in (("due", due_ns), ("sent", sent_ns), ("received", received_ns)):
        columns[name] = np.bincount(times // TICK, minlength=ticks)
        if name != "due":
            np.add.at(columns[f"{name}_offset_ns"], times // TICK, times % TICK)
    for tick in range(ticks):
        mine = received_ns[received_ns // TICK == tick]
        columns["first_ns"][tick], columns["last_ns"][tick] = (
            (ORIGIN + mine.min(), ORIGIN + mine.max()) if mine.size else (0, 0)
        )
    return SubscriptionSeries(**(columns | {"number": 0, "first_tick": 0}))  # type: ignore[arg-type]


def found(messages: SubscriptionSeries, lost: int = 0) -> list[OutageRow]:
    return outages([messages], {0: lost}, TICKS, CONNECTIONS)


def schedule(seconds: float, rate: int = 100) -> np.ndarray:
    return (np.arange(int(seconds * rate)) * (SECOND // rate)).astype(np.int64)


def interrupted(due_ns: np.ndarray, start_ns: int, end_ns: int, drained_in_ns: int) -> np.ndarray:
    """Received 1 ms after they were due, nothing between start and end; then the held ones within the drain time."""
    received_ns = due_ns + MS
    held = (received_ns > start_ns) & (received_ns < end_ns + drained_in_ns)
    received_ns[held] = np.maximum(np.linspace(end_ns, end_ns + drained_in_ns, held.sum()).astype(np.int64), end_ns)
    return received_ns


def test_a_planted_outage_is_found_to_the_nanosecond_with_its_recovery() -> None:
    due_ns = schedule(20)
    received_ns = interrupted(due_ns, 10 * SECOND, 12 * SECOND, SECOND)
    (outage,) = found(stream(due_ns, received_ns))
    before = received_ns[received_ns <= 10 * SECOND].max()
    assert (outage.start_ns, outage.end_ns) == (ORIGIN + before, ORIGIN + 12 * SECOND)
    assert outage.gap_ns == 12 * SECOND - before
    assert outage.earlier_rate == pytest.approx(100.0)
    # 300 messages were held or due while the backlog drained, and arrived within a second.
    assert outage.recovered_ns == outage.gap_ns
    assert outage.area_lost == pytest.approx(100 * outage.gap_ns / SECOND)
    assert outage.caught_up_ns is not None
    assert 0.9 * SECOND <= outage.caught_up_ns <= 1.2 * SECOND
    assert outage.peak_rate == pytest.approx(300, rel=0.05)


def test_recovery_at_half_speed_takes_until_the_rate_is_back() -> None:
    due_ns = schedule(20)
    received_ns = due_ns + MS
    gone = (due_ns >= 10 * SECOND) & (due_ns < 11 * SECOND)
    slow = (due_ns >= 11 * SECOND) & (due_ns < 14 * SECOND)
    kept = ~gone & (~slow | (np.arange(due_ns.size) % 2 == 0))  # half of them are lost for three seconds
    (outage,) = found(stream(due_ns, received_ns[kept]), lost=int((~kept).sum()))
    assert outage.recovered_ns == pytest.approx(4 * SECOND, abs=2 * TICK)
    assert outage.area_lost == pytest.approx(100 + 150, abs=12)
    assert outage.caught_up_ns is None  # lost messages never arrive


def test_a_pause_in_the_schedule_is_not_an_outage_even_after_losses() -> None:
    due_ns = schedule(20)
    due_ns = due_ns[(due_ns < 8 * SECOND) | (due_ns >= 12 * SECOND)]
    assert found(stream(due_ns, due_ns + MS)) == []
    kept = np.arange(due_ns.size) % 100 != 3
    assert found(stream(due_ns, (due_ns + MS)[kept]), lost=int((~kept).sum())) == []


def test_a_blocked_sender_cannot_hide_an_outage() -> None:
    due_ns = schedule(20)
    sent_ns = np.where((due_ns >= 8 * SECOND) & (due_ns < 10 * SECOND), 10 * SECOND, due_ns)
    (outage,) = found(stream(due_ns, sent_ns + MS, sent_ns))
    assert outage.gap_ns == pytest.approx(2 * SECOND, abs=2 * SECOND // 100)


def test_a_closed_loop_waiting_for_its_only_message_is_an_outage() -> None:
    """Each message is sent when the previous one has arrived, so nothing falls due during the outage."""
    sent_ns = np.concatenate([np.arange(0, 5 * SECOND, 10 * MS), np.arange(8 * SECOND, 12 * SECOND, 10 * MS)])
    received_ns = sent_ns + 9 * MS
    received_ns[sent_ns == 4990 * MS] = 8 * SECOND - MS
    assert [outage.start_ns for outage in found(stream(sent_ns, np.sort(received_ns)))] == [ORIGIN + 4989 * MS]


def test_deliveries_that_never_resume_are_an_open_ended_outage() -> None:
    due_ns = schedule(10)
    received_ns = (due_ns + MS)[due_ns < 6 * SECOND]
    (outage,) = found(stream(due_ns, received_ns), lost=400)
    assert (outage.end_ns, outage.recovered_ns, outage.caught_up_ns) == (None, None, None)
    assert outage.gap_ns == 10 * SECOND - (received_ns.max())


def test_rare_messages_and_missing_ones_make_no_outage() -> None:
    rare = schedule(20, rate=1)
    assert found(stream(rare, rare + MS)) == []
    due_ns = schedule(5)
    assert found(stream(due_ns, np.zeros(0, np.int64)), lost=500) == []


def test_the_area_under_the_backlog_is_the_time_that_messages_spent_in_the_system() -> None:
    random = np.random.default_rng(3)
    due_ns = np.sort(random.integers(0, 10 * SECOND, 5000))
    spent_ns = random.integers(0, 3 * SECOND, due_ns.size)
    messages = stream(due_ns, due_ns + spent_ns)
    assert messages.area_ns(TICK).sum() == pytest.approx(float(spent_ns.sum()), rel=1e-12)
    rows = backlog_rows([messages], TICKS, CONNECTIONS)
    for row in rows:
        end = (row.second + 1) * SECOND
        assert row.backlog == (due_ns < end).sum() - (due_ns + spent_ns < end).sum()
    assert sum(row.sent for row in rows) == sum(row.received for row in rows) == 5000


@pytest.mark.parametrize(("lost", "holds"), [(0, True), (3, False)])
def test_littles_law_holds_until_messages_go_missing(lost: int, holds: bool) -> None:
    due_ns = schedule(20, rate=1000)
    arrives = np.arange(due_ns.size) % 10 >= lost  # this many of every ten never arrive
    received_ns = np.where(arrives, due_ns + 250 * MS, 10**15)
    transfer = Latency("measure", "transfer", 1, 0, 250 * MS, 250.0 * MS, 0, {})
    measure = Phase("measure", ORIGIN + 2 * SECOND, ORIGIN + 18 * SECOND)
    (row,) = little_rows([stream(due_ns, received_ns[arrives])], TICKS, measure, transfer)
    assert row.holds is holds
    # By hand: each message is in the system from send to receipt, clipped to the phase.
    inside = np.minimum(received_ns, 18 * SECOND) - np.maximum(due_ns, 2 * SECOND)
    assert row.mean_backlog == pytest.approx(inside[inside > 0].sum() / (16 * SECOND))
    arrived = ((received_ns >= 2 * SECOND) & (received_ns < 18 * SECOND)).sum()
    assert row.rate == pytest.approx(arrived / 16)
    assert row.ratio == pytest.approx(row.mean_backlog / (row.rate * 0.25))
