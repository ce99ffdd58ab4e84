"""Does a recording say that it was us, and for how long, when we were; and not, when it was the system?

A pause is found whole, give or take `SLACK_NS`: one wait of a loop, and what a busy machine adds at any time.
"""

from pathlib import Path

import numpy as np
import pytest
from pyspark.sql import SparkSession

from crescendo.model.metrics import SAMPLES_BEYOND
from crescendo.model.verdict import Outcome
from crescendo.pipeline.lake.build import build_lake
from crescendo.record.summary import read_summary
from judged_delays import JudgedDelays
from paused_runs import RECEIVER, RELAY, SENDER, Delays, Pause, Paused, excerpt, run_paused

MS = 1_000_000
SLACK_NS = 250 * MS
EARLY_NS = 8 * MS  # a loop may have looked just before the signal
RATE = 500

# One after the other, far enough apart that each has passed before the next begins.
SENDER_SHORT = Pause(SENDER, 1.0, 0.08)
RECEIVER_PAUSED = Pause(RECEIVER, 1.6, 0.5)
SENDER_LONG = Pause(SENDER, 2.8, 2.5)
SYSTEM_PAUSED = Pause(RELAY, 6.2, 2.0)
SENDER_APART = Pause(SENDER, 9.0, 0.5)
SYSTEM_OVERLAPPED = Pause(RELAY, 10.2, 2.0)
SENDER_OVERLAPPING = Pause(SENDER, 11.8, 0.8)
PAUSES = [
    SENDER_SHORT, RECEIVER_PAUSED, SENDER_LONG, SYSTEM_PAUSED, SENDER_APART, SYSTEM_OVERLAPPED, SENDER_OVERLAPPING,
]  # fmt: skip
SECONDS = 13.4


@pytest.fixture(scope="module")
def delays(tmp_path_factory: pytest.TempPathFactory) -> Delays:
    """A fixed rate with a small window, so that a paused system holds the sender back."""
    group = {"rate": RATE, "mode": {"kind": "window", "size": 40}}
    return run_paused(tmp_path_factory.mktemp("paused"), [group], SECONDS, PAUSES)


def paused_at(delays: Delays, wanted: Pause) -> Paused:
    ends = sorted(PAUSES, key=lambda pause: pause.at_s + pause.duration_s)
    return delays.paused[ends.index(wanted)]


@pytest.mark.parametrize("pause", [SENDER_SHORT, SENDER_LONG, SENDER_APART])
def test_a_paused_sender_owns_the_delay_of_every_message_due_meanwhile(delays: Delays, pause: Pause) -> None:
    _, begun_ns, ended_ns = paused_at(delays, pause)
    due_ns = delays.intended_ns[(delays.intended_ns >= begun_ns) & (delays.intended_ns < ended_ns)]
    own_ns = delays.own_between(begun_ns, ended_ns)
    assert len(own_ns) >= RATE * (ended_ns - begun_ns) / 1e9 - 2
    assert (own_ns >= ended_ns - due_ns - EARLY_NS).all()
    # How long the backlog takes afterwards is up to the machine, but nobody owns more than the whole delay.
    assert (own_ns <= delays.late_between(begun_ns, ended_ns) + SLACK_NS).all()
    assert delays.longest_stall_ns(SENDER, begun_ns, ended_ns) >= ended_ns - begun_ns - EARLY_NS
    assert delays.statistics["sender-0"]["own_delay_max_ns"] >= max(own_ns)


def test_a_paused_receiver_says_how_late_it_read(delays: Delays) -> None:
    _, begun_ns, ended_ns = paused_at(delays, RECEIVER_PAUSED)
    waiting = (delays.received_intended_ns >= begun_ns + 10 * MS) & (delays.received_intended_ns < ended_ns - 10 * MS)
    late_ns, due_ns = delays.read_late_ns[waiting], delays.received_intended_ns[waiting]
    assert len(late_ns) >= RATE * 0.45
    # What accumulated in the socket is read in pieces, with one delay each; and it was sent a little after it was due.
    assert (late_ns >= ended_ns - due_ns - SLACK_NS).all()
    assert (late_ns <= ended_ns - begun_ns + SLACK_NS).all()
    assert late_ns[0] >= ended_ns - begun_ns - SLACK_NS / 2
    assert late_ns[-1] <= SLACK_NS, "what arrived last was not there for long"
    assert delays.longest_stall_ns(RECEIVER, begun_ns, ended_ns) >= ended_ns - begun_ns - EARLY_NS
    assert delays.statistics["receiver-0"]["read_delay_max_ns"] >= late_ns[0]


@pytest.mark.parametrize(("role", "pause"), [(SENDER, SENDER_LONG), (RECEIVER, RECEIVER_PAUSED)])
def test_both_roles_record_their_stalls_with_what_the_kernel_tells(delays: Delays, role: str, pause: Pause) -> None:
    _, begun_ns, ended_ns = paused_at(delays, pause)
    stalls = [stall for stall in delays.stalls if stall["role"] == role]
    assert {stall["peer"] for stall in stalls} == {f"{role}-0"}
    assert all(stall["duration_ns"] > MS for stall in stalls)
    assert all(stall["steal_ns"] >= 0 and stall["major_faults"] >= 0 for stall in stalls)
    # A pause is one row, not one for each pass of the loop that was missed.
    inside = [stall for stall in stalls if begun_ns <= stall["from_ns"] + stall["duration_ns"] / 2 < ended_ns]
    assert len(inside) == 1
    told_ns = sum(stall.get("total_ns", stall["duration_ns"]) for stall in stalls)
    assert delays.statistics[f"{role}-0"]["stalled_ns"] == told_ns


def test_a_paused_system_is_not_our_delay(delays: Delays) -> None:
    _, begun_ns, ended_ns = paused_at(delays, SYSTEM_PAUSED)
    late_ns, own_ns = delays.late_between(begun_ns, ended_ns), delays.own_between(begun_ns, ended_ns)
    assert late_ns.max() > 1700 * MS  # the window is full after 80 ms
    assert own_ns.max() <= SLACK_NS
    assert (own_ns >= 0).all()
    arrived = (delays.received_intended_ns >= begun_ns) & (delays.received_intended_ns < ended_ns)
    assert delays.read_late_ns[arrived].max() <= SLACK_NS


def test_of_overlapping_pauses_the_sender_owns_what_came_after_the_system_went_on(delays: Delays) -> None:
    """The system goes on while the sender is still stopped: from then on it is the sender's delay."""
    system, sender = paused_at(delays, SYSTEM_OVERLAPPED), paused_at(delays, SENDER_OVERLAPPING)
    blocked_since_ns = system.begun_ns + 300 * MS
    before = delays.own_between(blocked_since_ns, sender.begun_ns - 10 * MS)
    assert len(before) > 100
    ours_ns = sender.ended_ns - system.ended_ns
    assert ours_ns > 300 * MS
    assert (before >= ours_ns - SLACK_NS).all()
    assert (before <= ours_ns + SLACK_NS).all()
    late_ns = delays.late_between(blocked_since_ns, sender.begun_ns - 10 * MS)
    assert late_ns.max() - before[np.argmax(late_ns)] > 1000 * MS, "the rest is the system's"
    after = delays.own_between(system.ended_ns + 10 * MS, sender.ended_ns)
    late_ns = delays.late_between(system.ended_ns + 10 * MS, sender.ended_ns)
    assert (after >= late_ns - SLACK_NS).all()


def test_outside_of_all_pauses_nothing_was_late(delays: Delays) -> None:
    quiet = delays.own_between(delays.paused[-1].ended_ns + 400 * MS, delays.paused[-1].ended_ns + 10**10)
    assert len(quiet) > 50
    assert np.median(quiet) < 20 * MS
    assert delays.statistics["sender-0"]["blocked_share"] == pytest.approx((1.92 + 1.92) / SECONDS, abs=0.08)


BOUND_NS = 1000 * MS
JUDGED = {
    "receiver": ([RECEIVER_PAUSED], 250 * MS, "invalid"),
    "sender": ([SENDER_LONG], BOUND_NS, "invalid"),
    "sender, loosely": ([SENDER_LONG], 10 * BOUND_NS, "pass, named"),
    "system": ([SYSTEM_PAUSED], BOUND_NS, "fail"),
    "apart": ([SYSTEM_PAUSED, SENDER_APART], BOUND_NS, "fail"),
    "overlapping": ([SYSTEM_OVERLAPPED, SENDER_OVERLAPPING], BOUND_NS, "invalid"),
}
"""What was paused, the bound on the p90 and on the maximum of the messages due around it, and the outcome of both."""


def around(delays: Delays, pauses: list[Pause]) -> tuple[int, int]:
    paused = [paused_at(delays, pause) for pause in pauses]
    return paused[0].begun_ns - 200 * MS, paused[-1].ended_ns + 300 * MS


def test_the_verdict_on_a_pause_depends_on_whose_it_was(delays: Delays) -> None:
    judged = JudgedDelays(delays)
    for name, (pauses, limit_ns, expected) in JUDGED.items():
        found = {judged.outcome(percent, limit_ns, *around(delays, pauses)) for percent in (90, 100)}
        # Of a failed check, how much of the value is ours does not matter.
        assert {outcome.removesuffix(", named") if expected == "fail" else outcome for outcome in found} == {
            expected
        }, name


def test_a_short_pause_is_judged_by_a_high_percentile(short: Delays) -> None:
    bound_ns = _short_bound_ns(short)
    outcome = JudgedDelays(short).outcome(99.9, bound_ns, *_whole(short))
    assert outcome == "invalid" or _was_slow(short, bound_ns)


@pytest.fixture(scope="module")
def short(tmp_path_factory: pytest.TempPathFactory) -> Delays:
    """One short pause, at a rate at which more than ten messages are beyond the p99.9."""
    return run_paused(tmp_path_factory.mktemp("short"), [{"rate": 4000}], 3.0, [SENDER_SHORT])


def _short_bound_ns(short: Delays) -> int:
    """Half of the pause, which a busy machine may shorten."""
    return (short.paused[0].ended_ns - short.paused[0].begun_ns) // (2 * MS) * MS


def _whole(short: Delays) -> tuple[int, int]:
    return int(short.intended_ns[0]), int(short.intended_ns[-1]) + 1


def _was_slow(short: Delays, bound_ns: int) -> bool:
    """Starved by other work, the system itself may have been that slow."""
    return int((short.transfer_ns - short.read_late_ns > bound_ns).sum()) >= SAMPLES_BEYOND


@pytest.mark.soak
def test_an_analysis_says_the_same(delays: Delays, short: Delays, spark: SparkSession, tmp_path: Path) -> None:
    """The measure phase of an excerpt is the time around its pauses."""
    bound_ns = _short_bound_ns(short)
    checks = {"response_p99.9": f"<= {bound_ns // MS}ms"}
    runs = [excerpt(short.run_dir, tmp_path / "short", *_whole(short), checks)]
    for name, (pauses, limit_ns, _) in JUDGED.items():
        checks = dict.fromkeys(("response_p90", "response_max"), f"<= {limit_ns // MS}ms")
        runs.append(excerpt(delays.run_dir, tmp_path / name, *around(delays, pauses), checks))
    build_lake(runs, tmp_path / "lake", spark, lambda _: None)
    of_short, *summaries = [read_summary(run) for run in runs]
    for summary, (name, (_, _, expected)) in zip(summaries, JUDGED.items(), strict=True):
        outcomes = {check.outcome.value for check in summary.verdict.checks}
        assert outcomes == {expected.removesuffix(", named")}, name
        is_named = any("own delay up to" in remark for remark in summary.remarks)
        assert is_named or not name.startswith(("sender", "receiver"))
    (check,) = of_short.verdict.checks
    assert check.outcome is Outcome.INVALID or _was_slow(short, bound_ns)


def test_without_a_schedule_a_batch_says_how_long_it_could_have_been_sent_earlier(tmp_path: Path) -> None:
    """At full speed, each through a window, with one sender that follows a schedule beside it."""
    pauses = [Pause(SENDER, 0.6, 0.4), Pause(RELAY, 1.6, 0.4)]
    groups = [
        {"name": "unbounded", "rate": 0, "address": "queue://a", "mode": {"kind": "window", "size": 200}},
        {"name": "bounded", "rate": RATE, "address": "queue://b", "mode": {"kind": "window", "size": 40}},
    ]
    delays = run_paused(tmp_path, groups, 2.6, pauses)
    unbounded = int(delays.sender[np.argmax(delays.sent_ns == delays.intended_ns)])
    chosen = delays.rows["sender"] == unbounded
    sent_ns = {int(seq): int(at) for sender, seq, at in zip(delays.sender, delays.seq, delays.sent_ns, strict=True)
               if sender == unbounded}  # fmt: skip
    at_ns = np.array([sent_ns[int(seq)] for seq in delays.rows["first_seq"][chosen]])
    own_ns = delays.rows["own_ns"][chosen]
    sender, system = delays.paused
    # It may be stopped after it has stamped a batch and before it writes it: that batch says so, at its earlier time.
    resumed = (at_ns >= sender.begun_ns - SLACK_NS) & (at_ns < sender.ended_ns + SLACK_NS)
    assert own_ns[resumed].max() == pytest.approx(sender.ended_ns - sender.begun_ns, abs=SLACK_NS)
    assert own_ns[resumed].max() >= sender.ended_ns - sender.begun_ns - 30 * MS
    held = (at_ns >= system.begun_ns) & (at_ns < system.ended_ns + SLACK_NS)
    assert own_ns[held].max() <= SLACK_NS
    assert np.diff(np.sort(at_ns)).max() >= 350 * MS  # it was held for that long
    # The group with a schedule is judged by itself.
    scheduled = delays.sender != unbounded
    late_ns = (delays.sent_ns - delays.intended_ns)[scheduled]
    assert delays.own_ns[scheduled].max() >= sender.ended_ns - sender.begun_ns - EARLY_NS
    during = scheduled & (delays.intended_ns > system.begun_ns + 150 * MS) & (delays.intended_ns < system.ended_ns)
    assert late_ns.max() >= 350 * MS
    assert delays.own_ns[during].max() <= SLACK_NS
