"""How is the rate of a running test changed?

All senders are given the new rate and one instant, far enough ahead that each of them knows before it comes. A sender
that does not confirm, or knew too late, makes the run incomplete: what was offered would be unknown. Pure, like the
conductor that calls it.
"""

from dataclasses import replace

from crescendo.control import notes
from crescendo.control.conductor.commands import AnswerRequest, Command, RateChange, RecordEvent, SendRequest
from crescendo.control.conductor.endings import Step, lose_peer
from crescendo.control.conductor.events import PeerAnswered, RateRequested
from crescendo.control.conductor.plan import SECOND_NS
from crescendo.control.conductor.state import PeerState, RunState, Stage
from crescendo.control.request_payloads import SetRequest

CONFIRM_NS = 2 * SECOND_NS
"""How long after the change a confirmation may arrive."""


def change_rate(run: RunState, event: RateRequested) -> Step:
    reason = _why_not(run, event.now_ns)
    if reason:
        return run, (AnswerRequest(event.requester, event.correlation, reason),)
    t0_ns = run.t0_ns or 0
    from_ns = max(event.now_ns, t0_ns) + run.plan.rate_lead_ns
    payload = SetRequest(options={"rate": event.rate}, from_ns=from_ns).to_payload()
    requests: list[Command] = []
    correlation = run.correlation
    for peer in _sending(run):
        correlation += 1
        run = run.with_peer(replace(peer, unconfirmed=(correlation, from_ns)))
        requests.append(SendRequest(peer.plan.id, notes.Command.SET, correlation, payload))
    change = RateChange(from_ns - t0_ns, event.rate)
    run = replace(run, correlation=correlation, rate_changes=(*run.rate_changes, change))
    detail = {"rate": event.rate, "from_ns": from_ns, "by": event.requester.id}
    return run, (
        RecordEvent(event.now_ns, "rate change", detail),
        *requests,
        AnswerRequest(event.requester, event.correlation),
    )


def confirm_rate(run: RunState, peer: PeerState, event: PeerAnswered) -> Step:
    """A sender has taken over the new rate, or could not."""
    peer = replace(peer.seen(event.now_ns, event.statistics), unconfirmed=None)
    if event.ok:
        return run.with_peer(peer), ()
    reason = event.failure.reason if event.failure else "refused"
    return lose_peer(run.with_peer(peer), peer, f"its rate was not changed: {reason}", event.now_ns)


def rate_is_overdue(peer: PeerState, now_ns: int) -> bool:
    return peer.unconfirmed is not None and now_ns > peer.unconfirmed[1] + CONFIRM_NS


def _sending(run: RunState) -> list[PeerState]:
    return [peer for peer in run.of("sender") if peer.present and not peer.done_sending]


def _why_not(run: RunState, now_ns: int) -> str:
    if run.plan.fixed_rate:
        return run.plan.fixed_rate
    if run.stage is not Stage.RUNNING or run.t0_ns is None or run.plan.measure_ns is None:
        return f"the run is {run.stage.value}; its rate can be changed while it is running"
    if any(peer.unconfirmed for peer in run.present):
        return "another change of rate is not confirmed yet"
    if not _sending(run):
        return "every sender has finished"
    left_ns = run.t0_ns + run.plan.warmup_ns + run.plan.measure_ns - now_ns
    return "the measure phase is about to end" if left_ns <= run.plan.rate_lead_ns else ""
