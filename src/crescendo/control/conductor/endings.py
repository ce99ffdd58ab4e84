"""How does a run end, normally or not?

Losing a peer, interruption, refusal, draining, stopping and concluding: each takes the current state of the run and
returns the next one, with the commands that lead there. Pure, like the conductor that calls it; decides how a run ends,
never when.
"""

from dataclasses import replace

from crescendo.control import notes
from crescendo.control.conductor.commands import Command, Conclude, LimitExceeded, RecordEvent, RunEnding
from crescendo.control.conductor.plan import SECOND_NS, Role
from crescendo.control.conductor.state import BEFORE_BARRIER, PeerState, RunState, Stage
from crescendo.control.notes import Failure, Fault

SHORT_DRAIN_NS = SECOND_NS // 2
"""How long receivers continue after a peer was lost: the run is void, and only the rest of the recording matters."""

STOPS: dict[Role, notes.Command] = {
    "sender": notes.Command.STOP_SENDER,
    "receiver": notes.Command.STOP_RECEIVER,
    "inspector": notes.Command.STOP_INSPECTOR,
    "agent": notes.Command.STOP_AGENT,
}

Step = tuple[RunState, tuple[Command, ...]]


def fail_peer(run: RunState, peer: PeerState, failure: Failure, now_ns: int) -> Step:
    """The peer reports that it cannot continue. If the system dropped it, that is a result: the other peers finish."""
    if run.stage in BEFORE_BARRIER:
        run = run.with_peer(replace(peer, gone="failed", reason=failure.reason))
        return refuse(run, failure.reason, failure.fault, now_ns)
    if failure.fault == "lost":
        return lose_peer(run, peer, failure.reason, now_ns)
    detail = {"peer": peer.plan.id, "reason": failure.reason, "fault": failure.fault}
    return run.with_peer(replace(peer, gone="failed", reason=failure.reason)), (RecordEvent(now_ns, "failed", detail),)


def lose_peer(run: RunState, peer: PeerState, reason: str, now_ns: int) -> Step:
    """The peer's work is unknown. After the barrier that voids the run for good."""
    if peer.stopped:
        return run, ()  # its recording is closed and its final statistics have arrived; it may exit
    lost = f"lost {peer.plan.id}: {reason}"
    run = run.with_peer(replace(peer, gone="lost", reason=reason))
    if run.stage in BEFORE_BARRIER:
        return refuse(run, lost, "lost", now_ns)
    record = RecordEvent(now_ns, "lost", {"peer": peer.plan.id, "reason": reason})
    if run.state == "sealed":
        run = replace(run, state="incomplete", reason=lost)
    if peer.plan.role in {"inspector", "agent"}:
        return run, (record,)  # it carried no messages: the others finish, and only what it did itself is unknown
    short_ns = now_ns + min(run.plan.drain_ns, SHORT_DRAIN_NS)
    if run.stage is Stage.DRAINING:
        return replace(run, drain_until_ns=min(run.drain_until_ns, short_ns)), (record,)
    if run.stage is Stage.STOPPING:
        return run, (record,)
    run, stops = stop(replace(run, cut_ns=now_ns), run.of("sender"), now_ns)
    run, drains = drain(run, short_ns, now_ns)
    return run, (record, *stops, *drains)


def lose_peers(run: RunState, peers: list[PeerState], reason: str, now_ns: int) -> Step:
    """Lose all these peers; the run's reason names the first."""
    commands: tuple[Command, ...] = ()
    for peer in peers:
        if run.stage is not Stage.DONE:
            run, more = lose_peer(run, run.peers[peer.plan.id], reason, now_ns)
            commands += more
    return run, commands


def end_with_system(run: RunState, how: str, log_lines: str, now_ns: int) -> Step:
    """The system has ended: there is nothing left to measure, and nothing more will arrive."""
    reason = f"{how}{_moment(run, now_ns)}" + (f"; last log lines: {log_lines}" if log_lines else "")
    record = RecordEvent(now_ns, "system ended", {"reason": reason})
    if run.stage in BEFORE_BARRIER:
        run, end = refuse(run, reason, "peer", now_ns)
        return run, (record, *end)
    if run.plan.outlives_system or run.stage is Stage.STOPPING:
        return run, (record,)
    if run.state == "sealed":
        run = replace(run, state="incomplete", reason=reason)
    if run.stage is Stage.RUNNING:
        run = replace(run, cut_ns=now_ns)
    run, stops = stop_all(run, now_ns)
    return run, (record, *stops)


def _moment(run: RunState, now_ns: int) -> str:
    """When this is, as text: how long after the begin of the current phase."""
    phases = [(name, now_ns - start_ns) for name, start_ns, _ in run.phases(now_ns) if start_ns <= now_ns]
    if run.stage in BEFORE_BARRIER or not phases:
        return " before the first message"
    name, elapsed_ns = phases[-1]
    return f", {elapsed_ns / 1e9:.1f} s into {name}"


def lose_control(run: RunState, reason: str, now_ns: int) -> Step:
    """No peer can be asked to stop, or say how it ended. Peers stop by themselves; what they recorded counts."""
    if run.stage in BEFORE_BARRIER:
        return refuse(run, reason, "lost", now_ns)
    for peer in run.present:
        if not peer.stopped:
            run = run.with_peer(replace(peer, gone="lost", reason=reason))
    if run.state == "sealed":
        run = replace(run, state="incomplete", reason=reason)
    if run.stage is Stage.RUNNING:
        run = replace(run, cut_ns=now_ns)
    run, end = conclude(run, "lost", now_ns)
    return run, (RecordEvent(now_ns, "control lost", {"reason": reason}), *end)


def interrupt(run: RunState, now_ns: int) -> Step:
    record = RecordEvent(now_ns, "interrupted", {"stage": run.stage.value})
    if run.state == "sealed":
        run = replace(run, state="interrupted", reason="interrupted")
    if run.stage in BEFORE_BARRIER:
        run, end = conclude(run, None, now_ns)
        return run, (record, *end)
    if run.stage is Stage.STOPPING:
        return run, (record,)
    if run.stage is Stage.RUNNING:
        run = replace(run, cut_ns=now_ns)
    run, stops = stop_all(run, now_ns)
    return run, (record, *stops)


def stop_on_limit(run: RunState, exceeded: LimitExceeded, now_ns: int) -> Step:
    """A `stop_when` limit was exceeded: stop the senders; the drain follows as usual.

    Without the drain, every message in flight would count as lost.
    """
    detail = {
        "metric": exceeded.metric,
        "value_ns": exceeded.value_ns,
        "limit_ns": exceeded.limit_ns,
        "peer": exceeded.peer,
    }
    unfinished = [peer for peer in run.of("sender") if not peer.done_sending]
    run, stops = stop(replace(run, exceeded=exceeded, cut_ns=now_ns), unfinished, now_ns)
    return run, (RecordEvent(now_ns, "limit exceeded", detail), *stops)


def drain(run: RunState, until_ns: int, now_ns: int) -> Step:
    run = replace(run.entering(Stage.DRAINING, now_ns), drain_until_ns=until_ns)
    receivers = [peer for peer in run.present if peer.plan.role == "receiver"]
    run, requests = run.with_requests(receivers, notes.Command.DRAIN)
    return run, (RecordEvent(now_ns, "draining", {"at_most_ns": until_ns - now_ns}), *requests)


def stop(run: RunState, peers: list[PeerState], now_ns: int) -> Step:
    """Stop those of the peers that are present and have not been asked to stop."""
    stopping = [
        replace(peer, stop_requested_ns=now_ns) for peer in peers if peer.present and peer.stop_requested_ns is None
    ]
    commands: tuple[Command, ...] = ()
    for role, command in STOPS.items():
        run, requests = run.with_requests([peer for peer in stopping if peer.plan.role == role], command)
        commands += requests
    return run, commands


def stop_all(run: RunState, now_ns: int) -> Step:
    arrived = {"everything_arrived": run.everything_arrived}
    run, stops = stop(run.entering(Stage.STOPPING, now_ns), run.present, now_ns)
    return run, (RecordEvent(now_ns, "stopping", arrived), *stops)


def _unconfirmed(run: RunState) -> str:
    """The peer that did not confirm its start or its rate, as text; empty if all confirmed."""
    for peer in run.present:
        if peer.start_request is not None:
            return f"{peer.plan.id} did not confirm its start"
        if peer.unconfirmed is not None:
            return f"{peer.plan.id} did not confirm the change of rate"
    return ""


def refuse(run: RunState, reason: str, fault: Fault, now_ns: int) -> Step:
    return conclude(replace(run, state="refused", reason=reason), fault, now_ns)


def conclude(run: RunState, fault: Fault | None, now_ns: int) -> Step:
    """Halt every peer, including those presumed dead: one that is still alive must not continue on its own."""
    if run.state == "sealed" and (unconfirmed := _unconfirmed(run)):
        run = replace(run, state="incomplete", reason=unconfirmed)
    if run.state == "incomplete":
        fault = "lost"
    ending = RunEnding(
        state=run.state,
        reason=run.reason,
        stage="before barrier" if run.t0_ns is None else "after barrier",
        fault=fault,
        t0_ns=run.t0_ns,
        phases=run.phases(now_ns),
        peers=tuple(peer.ending(run.state) for peer in run.peers.values()),
        exceeded=run.exceeded,
        rate_changes=run.rate_changes,
    )
    record = RecordEvent(now_ns, "concluded", {"state": run.state, "reason": run.reason})
    run, halts = run.entering(Stage.DONE, now_ns).with_requests(run.peers.values(), notes.Command.HALT)
    return run, (record, *halts, Conclude(ending))
