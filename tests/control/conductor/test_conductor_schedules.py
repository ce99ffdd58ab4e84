"""Is the verdict ever wrong, whatever a bus does to the notes? 500 seeded schedules in virtual time."""

import random
from collections import Counter

import pytest

from crescendo.control.conductor.commands import AnswerRequest
from crescendo.control.conductor.events import PeerAnswered, RateRequested
from crescendo.control.notes import STOP_COMMANDS, Command, Failure, Identity
from simulated_run import DELIVER, DROP, LATE, SECOND, TWICE, SimulatedRun, plan

SCHEDULES = 500
HAND = Identity("control-1", "control", "host", 9, 1)


def seeded(seed: int) -> tuple[SimulatedRun, bool]:
    """A run whose notes are repeated, late, reordered and lost in both directions, each seed in its own way.

    And whether nothing was lost: every note arrived in the end, and nobody was killed.
    """
    rng = random.Random(seed)
    weights = rng.choice([(97, 1, 1, 1), (80, 5, 10, 5), (50, 10, 20, 20), (90, 0, 5, 5), (40, 0, 30, 30)])
    deliveries = rng.choices([DELIVER, DROP, TWICE, LATE], weights, k=rng.randrange(100))
    requests = rng.choices([DELIVER, DROP, TWICE, LATE], weights, k=rng.randrange(40))
    phases = {"warmup_ns": SECOND // 2, "measure_ns": 2 * SECOND, "drain_ns": 2 * SECOND}
    simulated = SimulatedRun(plan(2, 2, inspectors=seed % 2, **phases), deliveries, requests)
    simulated.report_ns = SECOND
    simulated.join_all()
    kills = {rng.choice(list(simulated.roles)): rng.randrange(80) for _ in range(rng.choice([0, 0, 1]))}
    change_at = rng.choice([None, rng.randrange(60)])
    for tick in range(1200):
        if simulated.ending is not None:
            break
        if tick == change_at:
            simulated.feed(RateRequested(500.0, HAND, 1, simulated.now_ns))
        for peer, at in kills.items():
            if at == tick and simulated.ending is None:
                simulated.kill(peer, will=rng.random() < 0.5)
        simulated.advance(0.1)
    return simulated, DROP not in (*deliveries, *requests) and not simulated.dead


def test_no_schedule_of_notes_leads_to_a_wrong_verdict() -> None:
    endings: Counter[str] = Counter()
    changed = undisturbed = 0
    for seed in range(SCHEDULES):
        simulated, nothing_lost = seeded(seed)
        ending = simulated.ending
        assert ending is not None, f"seed {seed}: two minutes exceed all deadlines together"
        endings[ending.state] += 1
        undisturbed += nothing_lost
        if nothing_lost:
            assert (ending.state, ending.reason) == ("sealed", ""), f"seed {seed}: every note has arrived"
        if ending.state == "sealed":
            changed += bool(ending.rate_changes)
            wrong = wrongly_sealed(simulated, len(ending.rate_changes))
            assert not wrong, f"seed {seed}: {wrong}"
    assert endings["sealed"] > 50, endings
    assert endings["incomplete"] > 50, endings
    assert changed > 10
    assert undisturbed > 50


def wrongly_sealed(simulated: SimulatedRun, rate_changes: int) -> str:
    """What the peers know that forbids a verdict; empty if nothing does."""
    everybody = set(simulated.roles)
    closed = {peer for peer, command in simulated.accepted if command in STOP_COMMANDS}
    if simulated.dead.keys() - closed:
        return "a lost peer"
    if closed != everybody:
        return "an open recording"
    if everybody != {peer for peer, command in simulated.accepted if command is Command.SET}:
        return "started before all were ready"
    if everybody != simulated.started:
        return "a peer that never started"
    senders = {peer for peer, role in simulated.roles.items() if role == "sender"}
    if any(simulated.new_rates[sender] != rate_changes for sender in senders):
        return "nobody knows which rate was offered"
    return ""


@pytest.mark.parametrize("role", ["sender", "receiver", "inspector"])
@pytest.mark.parametrize("measure_ns", [SECOND, 10 * SECOND], ids=["short", "long"])
def test_a_peer_that_never_starts_makes_the_run_incomplete(role: str, measure_ns: int) -> None:
    simulated = SimulatedRun(plan(2, 2, inspectors=2, measure_ns=measure_ns))
    simulated.ignored.add((f"{role}-1", Command[f"START_{role.upper()}"]))
    simulated.join_all()
    simulated.advance(60)
    assert simulated.ending is not None
    assert simulated.ending.state == "incomplete"
    assert f"{role}-1" in simulated.ending.reason
    assert "did not confirm its start" in simulated.ending.reason


def test_a_peer_that_refuses_to_start_is_lost_not_a_result() -> None:
    simulated = SimulatedRun(plan(2, 2))
    simulated.refusals["receiver-1", Command.START_RECEIVER] = Failure("not a valid Start payload", "peer")
    simulated.join_all()
    simulated.advance(60)
    assert simulated.ending is not None
    assert simulated.ending.state == "incomplete"
    assert simulated.ending.reason == "lost receiver-1: refused to start: not a valid Start payload"


def running() -> SimulatedRun:
    simulated = SimulatedRun(plan(2, 2, measure_ns=10 * SECOND))
    simulated.join_all()
    simulated.advance(10, until="START_SENDER")
    simulated.advance(2.3)
    return simulated


def answers(simulated: SimulatedRun) -> list[AnswerRequest]:
    return [command for _, command in simulated.commands if isinstance(command, AnswerRequest)]


def test_a_change_of_rate_is_agreed_ahead_confirmed_by_all_and_recorded() -> None:
    simulated = running()
    asked_ns = simulated.now_ns
    simulated.feed(RateRequested(250.0, HAND, 7, asked_ns))
    (event,) = simulated.events("rate change")
    assert event.detail == {"rate": 250.0, "from_ns": asked_ns + SECOND, "by": "control-1"}
    assert answers(simulated) == [AnswerRequest(HAND, 7)]
    assert [len(simulated.requested("SET", peer)) for peer in ("sender-0", "sender-1", "receiver-0")] == [2, 2, 1]
    simulated.advance(60)
    assert simulated.ending is not None
    (change,) = simulated.ending.rate_changes
    assert (simulated.ending.state, change.rate) == ("sealed", 250.0)
    assert change.offset_ns == asked_ns + SECOND - (simulated.ending.t0_ns or 0)


def test_a_sender_that_does_not_change_its_rate_makes_the_run_incomplete() -> None:
    for mistake in ("refused", "silent"):
        simulated = running()
        simulated.ignored.add(("sender-1", Command.SET))
        simulated.feed(RateRequested(250.0, HAND, 7, simulated.now_ns))
        if mistake == "refused":
            unconfirmed = simulated.run.peers["sender-1"].unconfirmed
            assert unconfirmed is not None
            failure = Failure("too late", "peer")
            refusal = PeerAnswered(
                "sender-1", unconfirmed[0], Command.PROTOCOL_ERROR, False, failure, None, simulated.now_ns
            )
            simulated.feed(refusal)
        simulated.advance(60)
        assert simulated.ending is not None
        assert simulated.ending.state == "incomplete", mistake
        assert "rate" in simulated.ending.reason


def test_a_rate_that_cannot_be_changed_is_refused_with_its_reason() -> None:
    too_early = SimulatedRun(plan(2, 2))
    too_early.join_all()
    too_early.feed(RateRequested(250.0, HAND, 7, too_early.now_ns))
    assert "can be changed while it is running" in answers(too_early)[0].reason
    fixed = SimulatedRun(plan(2, 2, fixed_rate="it sends as fast as it can"))
    fixed.join_all()
    fixed.advance(10, until="START_SENDER")
    fixed.feed(RateRequested(250.0, HAND, 7, fixed.now_ns))
    assert answers(fixed) == [AnswerRequest(HAND, 7, "it sends as fast as it can")]
    twice = running()
    for correlation in (7, 8):
        twice.feed(RateRequested(250.0, HAND, correlation, twice.now_ns))
    assert [bool(answer.reason) for answer in answers(twice)] == [False, True]
