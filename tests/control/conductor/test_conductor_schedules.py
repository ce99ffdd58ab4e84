"""Is the verdict ever wrong, whatever a bus does to the notes? 500 seeded schedules in virtual time."""

import random

from crescendo.control.conductor.commands import AnswerRequest
from crescendo.control.conductor.events import PeerAnswered, RateRequested
from crescendo.control.notes import Command, Failure, Identity
from simulated_run import DELIVER, DROP, LATE, SECOND, TWICE, SimulatedRun, plan

SCHEDULES = 500
HAND = Identity("control-1", "control", "host", 9, 1)


def seeded(seed: int) -> SimulatedRun:
    """A run whose notes are repeated, late, reordered and lost, each seed in its own way."""
    rng = random.Random(seed)
    weights = rng.choice([(97, 1, 1, 1), (80, 5, 10, 5), (50, 10, 20, 20), (90, 0, 5, 5)])
    deliveries = rng.choices([DELIVER, DROP, TWICE, LATE], weights, k=rng.randrange(400))
    simulated = SimulatedRun(plan(2, 2, inspectors=seed % 2), deliveries)
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
    return simulated


def test_no_schedule_of_notes_leads_to_a_wrong_verdict() -> None:
    endings: dict[str, int] = {}
    changed = 0
    for seed in range(SCHEDULES):
        simulated = seeded(seed)
        ending = simulated.ending
        assert ending is not None, f"seed {seed}: two minutes exceed all deadlines together"
        endings[ending.state] = endings.get(ending.state, 0) + 1
        stops = {Command.STOP_SENDER, Command.STOP_RECEIVER, Command.STOP_INSPECTOR}
        closed = {peer for peer, command in simulated.accepted if command in stops}
        if ending.state != "sealed":
            continue
        assert not simulated.dead.keys() - closed, f"seed {seed}: a lost peer"
        assert closed == set(simulated.roles), f"seed {seed}: an open recording"
        ready = {peer for peer, command in simulated.accepted if command is Command.SET}
        assert ready == set(simulated.roles), f"seed {seed}: started before all were ready"
        changed += bool(ending.rate_changes)
        for peer in simulated.run.peers.values():
            assert peer.unconfirmed is None, f"seed {seed}: nobody knows which rate was offered"
    assert endings["sealed"] > 50, endings
    assert endings["incomplete"] > 50, endings
    assert changed > 10


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
