"""Whose fault is a pause? Recordings of a system, a sender or a receiver that stood still, analysed as a whole.

What follows from own delay is in verdict/test_explained_checks.py, without Spark; here is how own delay is found. All
recordings are analysed together, because that costs little more than one.
"""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from analyzed_together import analyzed_together
from crescendo.record.manifest import ExceededLimit, Phase
from crescendo.record.summary import Latency, Summary
from paused_recordings import Paused, write_groups
from tiny_recordings import ACCOUNTED, END_NS, MEASURE_NS, MS, SECOND_NS, START_NS, Tiny

CHECKS = {"response_p99": "<= 100ms", "response_max": "<= 1s", "transfer_max": "<= 1s", "rate": ">= 0.99 of offered"}
STOPPED = ExceededLimit("response_p90", 1200 * MS, 200 * MS, "receiver-0")
UNTIL_AFTER_THE_END = (2.8, 4.5)
Write = Callable[[Path], Path]
RECORDINGS: dict[str, Write] = {}
Summaries = Mapping[str, Summary]


def recording(write: Write) -> Write:
    """Have what this function writes analysed with the others, under its name."""
    RECORDINGS[write.__name__] = write
    return write


@pytest.fixture(scope="module")
def summaries(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Summaries:
    return analyzed_together(RECORDINGS, spark, tmp_path_factory.mktemp("own-delay"))


def outcomes(summary: Summary) -> dict[str, str]:
    return {check.metric: check.outcome.value for check in summary.verdict.checks}


def without_own_delay(summary: Summary, kind: str) -> Latency:
    return next(row for row in summary.without_own_delay if row.kind == kind)


def paused_recording(name: str, paused: Paused, **checks: str) -> None:
    paused.tiny.exceeded = None if checks else STOPPED
    RECORDINGS[name] = lambda run_dir: paused.write(run_dir, **(checks or CHECKS))


paused_recording("system", Paused(system=UNTIL_AFTER_THE_END))
paused_recording("sender", Paused(sender=UNTIL_AFTER_THE_END))
paused_recording("receiver", Paused(receiver=UNTIL_AFTER_THE_END))


def test_a_pause_of_the_system_fails(summaries: Summaries) -> None:
    summary = summaries["system"]
    assert set(outcomes(summary).values()) == {"fail"}
    assert not any("own delay" in remark for remark in summary.remarks)


def test_a_pause_of_our_sender_is_invalid_and_named(summaries: Summaries) -> None:
    summary = summaries["sender"]
    assert outcomes(summary) == {
        "response_p99": "invalid", "response_max": "invalid", "transfer_max": "pass", "rate": "invalid",
        "response_p90": "invalid",
    }  # fmt: skip
    assert any(remark.startswith("own delay up to 1.7 s in response_max 1.7 s") for remark in summary.remarks)
    assert (summary.rate.sustained, summary.rate.without_own_delay) == (175, 250)


def test_a_pause_of_our_receiver_is_invalid_and_named(summaries: Summaries) -> None:
    summary = summaries["receiver"]
    assert set(outcomes(summary).values()) == {"invalid"}
    assert any(remark.startswith("own delay up to 1.7 s in ") for remark in summary.remarks)
    assert summary.rate.without_own_delay == 250
    # Every message took a millisecond; a bucket is 0.4 % wide.
    for kind in ("response", "transfer"):
        assert without_own_delay(summary, kind).max_ns == pytest.approx(MS, rel=0.004)


OVERLAPPING = {
    "sender_before": Paused(system=(0.5, 2.5), sender=(0.2, 0.7)),
    "sender_after": Paused(system=(0.5, 2.5), sender=(2.3, 2.8)),
    "sender_within": Paused(system=(0.5, 2.5), sender=(1.2, 1.7), window=20),
    "receiver_before": Paused(system=(0.5, 2.5), receiver=(0.2, 0.7)),
    "receiver_after": Paused(system=(0.5, 2.5), receiver=(2.3, 2.8)),
    "until_the_end": Paused(system=UNTIL_AFTER_THE_END, sender=(2.6, 3.1)),
}
NOT_OVERLAPPING = {
    "system_alone": Paused(system=(0.5, 2.5)),  # its processes are those of the others
    "apart": Paused(system=(0.5, 2.5), sender=(3, 3.5)),
    "receiver_apart": Paused(system=(0.5, 2.5), receiver=(3, 3.5)),
    "trifling": Paused(system=(0.5, 2.5), sender=(0.4, 0.55)),
    "system_at_the_end": Paused(system=UNTIL_AFTER_THE_END, sender=(0.5, 1)),
}


BOUNDS = {
    "response_p99": "<= 1s", "response_max": "<= 1400ms", "transfer_max": "<= 1s", "settle_max": "<= 1s",
    "rate": ">= 0.9 of offered",
}  # fmt: skip


@recording
def both(run_dir: Path) -> Path:
    return write_groups(run_dir, OVERLAPPING | NOT_OVERLAPPING, BOUNDS)


def test_pauses_of_both_fail_apart_and_prove_nothing_where_they_overlap(summaries: Summaries) -> None:
    """The system pauses for 2 s, and we for 0.5 s. Message by message ours explains little of it."""
    groups = OVERLAPPING | NOT_OVERLAPPING
    judged = outcomes(summaries["both"])
    by_group = {name: {judged[f"{name}.{metric}"] for metric in BOUNDS if metric != "rate"} for name in groups}
    assert by_group == {name: {"invalid" if name in OVERLAPPING else "fail"} for name in groups}
    rates = {name: judged[f"{name}.rate"] for name in groups if judged[f"{name}.rate"] != "pass"}
    assert rates == {"until_the_end": "invalid", "system_at_the_end": "fail"}


WINDOWED = {"response_p99": "<= 100ms", "rate": ">= 0.99 of offered"}
paused_recording("held", Paused(system=UNTIL_AFTER_THE_END, window=4), **WINDOWED)
paused_recording("late", Paused(sender=UNTIL_AFTER_THE_END, window=4), **WINDOWED)


def test_time_in_which_the_system_held_the_sender_back_is_not_ours(summaries: Summaries) -> None:
    """With a window, a pause of the system looks like a late sender. Only the recorded ranges tell them apart."""
    assert outcomes(summaries["held"]) == {"response_p99": "fail", "rate": "fail"}
    assert outcomes(summaries["late"]) == {"response_p99": "invalid", "rate": "invalid"}


@recording
def bounded_beside_unbounded(run_dir: Path) -> Path:
    """A bounded group whose sender pauses, beside an unbounded one that needs half of the time for itself."""
    tiny = Tiny(
        group={"name": "bounded", "rate": 250, "senders": 1, "receivers": 1, "address": "queue://a"},
        more_groups=[{"name": "unbounded", "rate": 0, "senders": 1, "receivers": 1, "address": "queue://b"}],
    )
    for batch in range(100):
        sent_ns = MEASURE_NS + batch * 40 * MS
        for seq in range(batch * 10, batch * 10 + 10):
            tiny.send(1, seq, sent_ns)
            tiny.deliver(1, 1, seq, sent_ns, sent_ns + 50 * MS)
        tiny.own_delay.append((1, batch * 10, batch * 10 + 9, 20 * MS))
    paused = Paused(sender=(1, 1.5), tiny=tiny)
    return paused.write(run_dir, response_p99="<= 20ms", transfer_p99="<= 20ms", rate=">= 600")


def test_each_group_is_judged_by_its_own_delay(summaries: Summaries) -> None:
    summary = summaries["bounded_beside_unbounded"]
    # The unbounded messages take 50 ms; the bounded ones 1 ms, apart from the pause of their sender.
    assert outcomes(summary) == {"response_p99": "invalid", "transfer_p99": "fail", "rate": "invalid"}
    assert without_own_delay(summary, "response").max_ns == pytest.approx(MS, rel=0.004)
    assert summary.rate.own_share == pytest.approx(0.5)
    # The unbounded 250 messages per second might have been 500; the last batch arrived after the end.
    assert summary.rate.without_own_delay == pytest.approx(250 + 2 * 245, rel=0.01)
    assert any("own delay up to 50% of the measure phase" in remark for remark in summary.remarks)


@recording
def stalled_then_resent(run_dir: Path) -> Path:
    """Our loop stood still for 0.3 s. Later a connection was lost, and what was in flight was sent again."""
    tiny = Tiny(checks={"settle_max": "<= 100ms", "response_max": "<= 100ms"}, statistics=ACCOUNTED)
    tiny.carry(1000)
    for seq in range(1000):
        sent_ns = MEASURE_NS + seq * MS
        settled_ns = sent_ns + 2 * MS
        stalled = MEASURE_NS + 500 * MS <= settled_ns < MEASURE_NS + 800 * MS
        tiny.accept(0, seq, seq, sent_ns, MEASURE_NS + 800 * MS if stalled else settled_ns)
    stall = f'{{"peer": "sender-0", "role": "sender", "from_ns": {MEASURE_NS + 500 * MS}, "duration_ns": {300 * MS}}}'
    tiny.events.append((MEASURE_NS + 800 * MS, "sender-0", "stall", stall))
    for seq in range(1000, 1020):
        intended_ns = MEASURE_NS + seq * MS
        tiny.send(0, seq, intended_ns)
        tiny.send(0, seq, intended_ns, 500 * MS, attempt=2)
        tiny.deliver(0, 0, seq, intended_ns, intended_ns + 501 * MS, late_ns=500 * MS)
    tiny.own_delay += [(0, 1000, 1019, 0), (0, 1005, 1010, 500 * MS)]
    return tiny.write(run_dir)


def test_stalls_explain_settlements_and_resent_messages_keep_their_first_delay(summaries: Summaries) -> None:
    summary = summaries["stalled_then_resent"]
    assert outcomes(summary) == {"settle_max": "invalid", "response_max": "fail"}
    assert without_own_delay(summary, "settle").max_ns == pytest.approx(2 * MS, rel=0.004)


@recording
def still_arriving(run_dir: Path) -> Path:
    """Two slow receivers share a queue. One message was overtaken by later ones: that one is lost."""
    tiny = Tiny(group={"rate": 250, "senders": 1, "receivers": 2}, checks={"lost": "<= 5", "lost_acknowledged": 0})
    tiny.phases = [Phase("measure", MEASURE_NS, END_NS), Phase("drain", END_NS, END_NS + SECOND_NS)]
    for seq in range(1000):
        tiny.send(0, seq, MEASURE_NS + seq * 4 * MS)
    tiny.accept(0, 0, 999, MEASURE_NS, END_NS)
    for seq in range(500):
        # Receiver 1 gets every second message, and is ten of them behind when the drain ends.
        if seq != 100 and (seq % 2 == 0 or seq < 480):
            tiny.deliver(seq % 2, 0, seq, MEASURE_NS + seq * 4 * MS, MEASURE_NS + (seq + 1) * 10 * MS)
    return tiny.write(run_dir)


def test_messages_still_arriving_when_the_drain_ends_are_undelivered(summaries: Summaries) -> None:
    summary = summaries["still_arriving"]
    total = summary.total
    assert (total.undelivered, total.lost_acknowledged, total.delivered, total.owed) == (510, 1, 489, 1000)
    assert outcomes(summary) == {"lost": "invalid", "lost_acknowledged": "fail"}
    assert "make phases.drain, or phases.drain_limit, longer" in summary.verdict.checks[0].reasons[0]
    assert summary.remarks == ["510 messages were still arriving when the drain ended: undelivered, not lost"]


RATES = {"rate": ">= 0.995 of offered", "paused.rate": ">= 0.99 of offered"}


@recording
def paused_at_the_end(run_dir: Path) -> Path:
    """The last 50 messages of one group arrive 80 ms late, after the phase; one due before it arrives in it."""
    each = {"rate": 1000, "senders": 1, "receivers": 1}
    tiny = Tiny(group={"name": "paused", **each}, checks=RATES)
    tiny.more_groups = [{"name": "other", "address": "queue://other", **each}]
    for group in (0, 1):
        for seq in range(5000):
            intended_ns = START_NS + seq * MS
            tiny.send(group, seq, intended_ns)
            late_ns = (80 if group == 0 and seq >= 4950 else 1) * MS
            tiny.received.append((group, group, seq, intended_ns, intended_ns, intended_ns + late_ns, seq, 100, 0))
    return tiny.write(run_dir)


def test_a_pause_at_the_end_of_the_measure_phase_does_not_lower_the_rate(summaries: Summaries) -> None:
    summary = summaries["paused_at_the_end"]
    assert summary.rate.sustained == pytest.approx((8000 - 49) / 4, abs=0.5)
    assert outcomes(summary) == {"rate": "pass", "paused.rate": "pass"}
    assert [check.value for check in summary.verdict.checks] == [pytest.approx(2000), pytest.approx(1000)]
    assert [remark for remark in summary.remarks if "judged with" in remark] == [
        f"49 messages that were due in the measure phase arrived within 100 ms of its end; {name} is judged with them"
        for name in RATES
    ]


RECONNECTING = {
    "reconnecting": (False, [], (60, 40)),
    "back_in_time": (True, [], (0, 100)),
    "never": (False, None, (0, 100)),
}


def reconnecting(run_dir: Path, is_back: bool, failover: list[str] | None) -> Path:
    """The system may have kept what it could not deliver. What was overtaken before is lost all the same."""
    tiny = Tiny(group={"rate": 100, "failover": failover}, checks={"lost_acknowledged": "<= 50"})
    tiny.phases = [Phase("measure", MEASURE_NS, END_NS), Phase("drain", END_NS, END_NS + 5 * SECOND_NS)]
    for seq in range(200):
        tiny.send(0, seq, MEASURE_NS + seq * 10 * MS)
    tiny.accept(0, 0, 199, MEASURE_NS, END_NS)
    for seq in (*range(50), *range(90, 140)):
        tiny.deliver(0, 0, seq, MEASURE_NS + seq * 10 * MS, MEASURE_NS + seq * 10 * MS + MS)
    tiny.events.append((MEASURE_NS + 1500 * MS, "receiver-0", "disconnect", '{"receiver": 0, "reason": "reset"}'))
    if is_back:
        tiny.events.append((END_NS + 100 * MS, "receiver-0", "reconnect", '{"receiver": 0}'))
    return tiny.write(run_dir)


for name, (is_back, failover, _) in RECONNECTING.items():
    RECORDINGS[name] = partial(reconnecting, is_back=is_back, failover=failover)


@pytest.mark.parametrize("name", RECONNECTING)
def test_a_receiver_that_was_reconnecting_when_the_drain_ended_accuses_nobody(name: str, summaries: Summaries) -> None:
    total = summaries[name].total
    assert (total.undelivered, total.lost_acknowledged) == RECONNECTING[name][2]
