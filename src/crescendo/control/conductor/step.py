"""Given the state of the run and an event, what is the next state and what must be done?

`step(run, event)` is the whole conductor: pure and deterministic, without clocks, sockets or randomness, so that a lost
peer, a late heartbeat or a duplicate note can be tested without a broker. Deadlines expire on Tick only: a conductor
that was suspended for a while first processes the notes that arrived meanwhile, and then decides which peers were
silent. The caller executes the commands; nothing here does.
"""

from dataclasses import replace
from typing import Any, assert_never

from crescendo.control import notes
from crescendo.control.conductor.commands import Command, LimitExceeded, RecordEvent
from crescendo.control.conductor.endings import (
    Step,
    conclude,
    drain,
    end_with_system,
    fail_peer,
    interrupt,
    lose_control,
    lose_peer,
    lose_peers,
    refuse,
    stop,
    stop_all,
    stop_on_limit,
)
from crescendo.control.conductor.events import (
    ControlLost,
    Event,
    Interrupted,
    PeerAnswered,
    PeerFailed,
    PeerFinished,
    PeerJoined,
    PeerLost,
    PeerReported,
    RateRequested,
    SystemBroken,
    SystemEnded,
    Tick,
)
from crescendo.control.conductor.plan import SECOND_NS, Role, RunPlan
from crescendo.control.conductor.rate_changes import change_rate, confirm_rate, rate_is_overdue
from crescendo.control.conductor.state import BEFORE_BARRIER, PeerState, RunState, Stage
from crescendo.control.notes import Failure, Fault, Start
from crescendo.model.metrics import exceeded_in_second

STARTS: dict[Role, notes.Command] = {
    "inspector": notes.Command.START_INSPECTOR,
    "agent": notes.Command.START_AGENT,
    "receiver": notes.Command.START_RECEIVER,
    "sender": notes.Command.START_SENDER,
}

FIRST_PREPARED: tuple[Role, ...] = ("receiver", "inspector", "agent")
"""Roles that are ready before a sender connects."""

STALL_NS = 10 * SECOND_NS
"""A run of unknown length ends after this long without a message."""

ARRIVING_NS = SECOND_NS
"""Messages still arrive if the last ones came within this time."""

SLACK_NS = SECOND_NS
"""A sender may always finish this late, however short the drain: its last note takes time to arrive."""


def begin(plan: RunPlan, now_ns: int) -> RunState:
    """A run that no peer has joined yet."""
    return RunState(plan=plan, entered_ns=now_ns, peers={peer.id: PeerState(peer) for peer in plan.peers})


def step(run: RunState, event: Event) -> Step:
    """The next state, and the commands to execute. A concluded run stays as it is."""
    if run.stage is Stage.DONE:
        return run, ()
    run, reaction = _apply_event(run, event)
    run, advance = _advance(run, event.now_ns)
    return run, reaction + advance


def _apply_event(run: RunState, event: Event) -> Step:
    match event:
        case Tick(now_ns):
            return _check_deadlines(run, now_ns)
        case Interrupted(now_ns):
            return interrupt(run, now_ns)
        case SystemBroken(now_ns):
            return _drain_longer(run, now_ns), ()
        case SystemEnded(how, log_lines, now_ns):
            return end_with_system(run, how, log_lines, now_ns)
        case ControlLost(reason, now_ns):
            return lose_control(run, reason, now_ns)
        case RateRequested():
            return change_rate(run, event)
        case PeerJoined() | PeerAnswered() | PeerReported() | PeerFinished() | PeerFailed() | PeerLost():
            peer = run.peers.get(event.peer)
            if peer is None or peer.gone is not None:
                return run, ()  # an unknown peer, or one already failed or lost
            if isinstance(event, PeerJoined):
                return _join(run, peer, event)
            # Before a peer has joined, only its loss or failure counts.
            if peer.joined or isinstance(event, PeerLost | PeerFailed):
                return _apply_peer_event(run, peer, event)
            return run, ()
        case _:
            assert_never(event)


def _join(run: RunState, peer: PeerState, event: PeerJoined) -> Step:
    if peer.joined:
        return run, ()  # the first one wins: a duplicate note, or a second process under the same id
    peer = replace(peer, identity=event.identity, hello=event.hello, last_seen_ns=event.now_ns)
    detail = {"peer": event.peer, "host": event.identity.host, "pid": event.identity.pid}
    return run.with_peer(peer), (RecordEvent(event.now_ns, "joined", detail),)


def _apply_peer_event(
    run: RunState, peer: PeerState, event: PeerAnswered | PeerReported | PeerFinished | PeerFailed | PeerLost
) -> Step:
    match event:
        case PeerReported(_, statistics, now_ns):
            run = run.with_peer(peer.seen(now_ns, statistics)).with_progress(now_ns)
            exceeded = _exceeded_limit(run, peer, statistics)
            return (run, ()) if exceeded is None else stop_on_limit(run, exceeded, now_ns)
        case PeerFinished(_, statistics, now_ns):
            peer = peer.seen(now_ns, statistics)
            if run.stage in BEFORE_BARRIER or peer.finished:
                return run.with_peer(peer), ()
            record = RecordEvent(now_ns, "finished", {"peer": event.peer, "messages": statistics.messages})
            return run.with_peer(replace(peer, finished=True)).with_progress(now_ns), (record,)
        case PeerAnswered():
            return _apply_answer(run, peer, event)
        case PeerFailed(_, failure, statistics, now_ns):
            return fail_peer(run, peer.seen(now_ns, statistics), failure, now_ns)
        case PeerLost(_, reason, now_ns):
            return lose_peer(run, peer, reason, now_ns)
        case _:
            assert_never(event)


def _exceeded_limit(run: RunState, peer: PeerState, statistics: notes.Statistics) -> LimitExceeded | None:
    """The limit that a receiver exceeded in this second, once the warm-up is over."""
    if run.exceeded is not None or run.stage is not Stage.RUNNING:
        return None
    if statistics.t_ns < (run.t0_ns or 0) + run.plan.warmup_ns + SECOND_NS:
        return None
    if peer.plan.role != "receiver":
        return None
    found = exceeded_in_second(run.plan.stop_when, statistics.values, statistics.by_slice)
    return None if found is None else LimitExceeded(*found, peer.plan.id)


def _apply_answer(run: RunState, peer: PeerState, event: PeerAnswered) -> Step:
    if peer.unconfirmed is not None and peer.unconfirmed[0] == event.correlation:
        return confirm_rate(run, peer, event)
    if peer.start_request is not None and peer.start_request == event.correlation:
        return _confirm_start(run, peer, event)
    if peer.pending is None or peer.pending[1] != event.correlation:
        return run, ()  # an answer to a superseded request
    command = peer.pending[0]
    peer = replace(peer.seen(event.now_ns, event.statistics), pending=None)
    if not event.ok:
        return fail_peer(run, peer, event.failure or Failure(f"refused {command.name}", "peer"), event.now_ns)
    match command:
        case notes.Command.SET:
            record = RecordEvent(event.now_ns, "ready", {"peer": event.peer})
            return run.with_peer(replace(peer, ready=True)), (record,)
        case _ if command in notes.STOP_COMMANDS:
            record = RecordEvent(event.now_ns, "stopped", {"peer": event.peer})
            return run.with_peer(replace(peer, stopped=True)), (record,)
        case _:
            return run.with_peer(peer), ()


def _confirm_start(run: RunState, peer: PeerState, event: PeerAnswered) -> Step:
    """It has been given its start time, however late we hear of it, or it never starts."""
    peer = replace(peer.seen(event.now_ns, event.statistics), start_request=None)
    if event.ok:
        return run.with_peer(peer), ()
    reason = event.failure.reason if event.failure else "no reason given"
    return lose_peer(run.with_peer(peer), peer, f"refused to start: {reason}", event.now_ns)


def _check_deadlines(run: RunState, now_ns: int) -> Step:
    plan, waited_ns = run.plan, now_ns - run.entered_ns
    match run.stage:
        case Stage.GATHERING if waited_ns >= plan.gather_ns:
            missing = [peer for peer in run.peers.values() if not peer.joined]
            return _refuse_missing(run, missing, f"did not join within {plan.gather_ns / 1e9:g} s", "lost", now_ns)
        case Stage.PREPARING_RECEIVERS | Stage.PREPARING_SENDERS if waited_ns >= plan.prepare_ns:
            missing = [peer for peer in run.peers.values() if peer.preparing]
            return _refuse_missing(
                run, missing, f"did not get ready within {plan.prepare_ns / 1e9:g} s", "peer", now_ns
            )
        case Stage.DRAINING if _drain_is_over(run, now_ns) or _grace_is_over(run, now_ns):
            return stop_all(run, now_ns)
    # A peer that was asked to stop has stop_ns to do so; every other peer has its lease.
    unresponsive = [peer for peer in run.present if peer.ignores_stop(now_ns, plan.stop_ns)]
    if unresponsive:
        return lose_peers(run, unresponsive, f"did not stop within {plan.stop_ns / 1e9:g} s", now_ns)
    late = [peer for peer in run.present if rate_is_overdue(peer, now_ns)]
    if late:
        return lose_peers(run, late, "did not confirm the change of rate", now_ns)
    silent = [peer for peer in run.present if peer.lease_ended(now_ns, plan.lease_ns)]
    if silent:
        return lose_peers(run, silent, f"no report for {plan.lease_ns / 1e9:g} s", now_ns)
    idle = [peer for peer in run.present if peer.ignores_start(now_ns - (run.t0_ns or now_ns), plan.lease_ns)]
    if idle:
        return lose_peers(run, idle, f"did not confirm its start within {plan.lease_ns / 1e9:g} s", now_ns)
    return _check_overrun(run, now_ns) if run.stage is Stage.RUNNING else (run, ())


def _refuse_missing(run: RunState, peers: list[PeerState], reason: str, fault: Fault, now_ns: int) -> Step:
    for peer in peers:
        run = run.with_peer(replace(peer, gone="lost" if fault == "lost" else "failed", reason=reason))
    return refuse(run, f"{', '.join(peer.plan.id for peer in peers)} {reason}", fault, now_ns)


def _drain_is_over(run: RunState, now_ns: int) -> bool:
    """At its end, unless messages still arrive and the run can still be judged."""
    arriving = run.state == "sealed" and now_ns - run.progress[1] < ARRIVING_NS
    return now_ns >= run.drain_until_ns and not (arriving and now_ns < run.entered_ns + run.plan.drain_limit_ns)


def _drain_longer(run: RunState, now_ns: int) -> RunState:
    """A broken system delivers nothing: the drain has its whole length after it is well, within its limit."""
    if run.stage is not Stage.DRAINING or run.state != "sealed":
        return run
    limit_ns = run.entered_ns + run.plan.drain_limit_ns
    until_ns = max(run.drain_until_ns, min(now_ns + run.plan.drain_ns, limit_ns))
    return replace(run, drain_until_ns=until_ns)


def _grace_is_over(run: RunState, now_ns: int) -> bool:
    return run.complete_ns is not None and now_ns - run.complete_ns >= run.plan.grace_ns


def _check_overrun(run: RunState, now_ns: int) -> Step:
    plan, t0_ns = run.plan, run.t0_ns or 0
    if plan.measure_ns is not None:
        limit_ns = t0_ns + plan.warmup_ns + plan.measure_ns + max(plan.drain_ns, SLACK_NS)
        reason = f"senders had not finished {max(plan.drain_ns, SLACK_NS) / 1e9:g} s after the measure phase"
    else:
        quiet_ns = max(plan.drain_ns, STALL_NS)
        limit_ns = max(run.progress[1], t0_ns) + quiet_ns
        reason = f"no message was sent or received for {quiet_ns / 1e9:g} s"
    unfinished = [peer for peer in run.of("sender") if not peer.done_sending and peer.stop_requested_ns is None]
    if not unfinished or now_ns <= limit_ns:
        return run, ()
    if run.state == "sealed":
        run = replace(run, reason=reason)
    run, stops = stop(run, unfinished, now_ns)
    return run, (
        RecordEvent(now_ns, "overrun", {"reason": reason, "peers": [peer.plan.id for peer in unfinished]}),
        *stops,
    )


def _advance(run: RunState, now_ns: int) -> Step:
    """Enter every stage whose condition is met; several at once where there is no peer to wait for."""
    commands: tuple[Command, ...] = ()
    while True:
        stage = run.stage
        run, more = _advance_once(run, now_ns)
        commands += more
        if run.stage is stage:
            return run, commands


def _advance_once(run: RunState, now_ns: int) -> Step:
    match run.stage:
        case Stage.GATHERING if all(peer.joined for peer in run.peers.values()):
            run = run.entering(Stage.PREPARING_RECEIVERS, now_ns)
            return run.with_requests(run.of(*FIRST_PREPARED), notes.Command.SET, _assignment)
        case Stage.PREPARING_RECEIVERS if all(peer.ready for peer in run.of(*FIRST_PREPARED)):
            run = run.entering(Stage.PREPARING_SENDERS, now_ns)
            return run.with_requests(run.of("sender"), notes.Command.SET, _assignment)
        case Stage.PREPARING_SENDERS if all(peer.ready for peer in run.of("sender")):
            return _start(run, now_ns)
        case Stage.RUNNING if all(peer.done_sending for peer in run.of("sender")):
            return drain(run, now_ns + run.plan.drain_ns, now_ns)
        case Stage.DRAINING:
            if not any(peer.gone is None for peer in run.of("receiver")):
                return stop_all(run, now_ns)  # no receiver is left
            if not run.everything_arrived:
                return replace(run, complete_ns=None), ()
            return (run, ()) if run.complete_ns is not None else (replace(run, complete_ns=now_ns), ())
        case Stage.STOPPING if all(peer.stopped for peer in run.present):
            return conclude(run, None, now_ns)
        case _:
            return run, ()


def _assignment(peer: PeerState) -> dict[str, Any]:
    return {"assignment": peer.plan.assignment}


def _start(run: RunState, now_ns: int) -> Step:
    """The barrier: every peer is ready and is given the same start time."""
    t0_ns = now_ns + run.plan.start_delay_ns
    run = replace(run.entering(Stage.RUNNING, now_ns), t0_ns=t0_ns, progress=(0, t0_ns))
    start = Start(t0_ns).to_payload()
    commands: tuple[Command, ...] = (RecordEvent(now_ns, "start", {"t0_ns": t0_ns}),)
    for role, command in STARTS.items():
        run, requests = run.with_requests(run.of(role), command, lambda peer: start)
        for request in requests:
            run = run.with_peer(replace(run.peers[request.peer], start_request=request.correlation))
        commands += requests
    return run, commands
