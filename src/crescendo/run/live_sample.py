"""What can be said about a run at this moment?

One sample from the statistics that peers report anyway, for the live page and for scrapers: no Spark, no extra question
to anybody. A figure that nobody has reported yet is missing, not zero. Counts nothing itself: the ledger does.
"""

from typing import Any

from crescendo.control.conductor.state import PeerState, RunState, Stage
from crescendo.model.gauges import GAUGES
from crescendo.record.metric_families import MetricFamily

ROLES = ("sender", "receiver")
_MAX_PEERS = 200
_RATED = (Stage.RUNNING, Stage.DRAINING, Stage.STOPPING)


def sample(state: RunState, now_ns: int) -> dict[str, Any]:
    """The run at this moment, as the live page shows it."""
    elapsed_s = None if state.t0_ns is None else (now_ns - state.t0_ns) / 1e9
    measure_ns = state.plan.measure_ns
    planned_s = None if measure_ns is None else (state.plan.warmup_ns + measure_ns) / 1e9
    return {
        "stage": state.stage.value,
        "phase": _phase(state, now_ns),
        "elapsed_s": elapsed_s,
        "planned_s": planned_s,
        "sender": _role(state, "sender"),
        "receiver": _role(state, "receiver"),
        "lease_s": state.plan.lease_ns / 1e9,
        "peers": [_peer(peer, now_ns) for peer in list(state.peers.values())[:_MAX_PEERS]],
    }


def _phase(state: RunState, now_ns: int) -> str:
    if state.stage is not Stage.RUNNING or state.t0_ns is None:
        return state.stage.value
    if now_ns < state.t0_ns:
        return "about to start"
    return "warm-up" if now_ns - state.t0_ns < state.plan.warmup_ns else "measure"


def _role(state: RunState, role: str) -> dict[str, Any]:
    peers = [peer for peer in state.peers.values() if peer.plan.role == role]
    reports = [peer.statistics for peer in peers if peer.statistics is not None]
    # Senders report no more when they are done: their last rate is not one of now.
    rated = [] if role == "sender" and state.stage is not Stage.RUNNING else reports
    return {
        "rate": sum(report.rate for report in rated) if state.stage in _RATED else 0.0,
        "messages": sum(report.messages for report in reports),
        "p90_ns": max((report.values.second_response_p90_ns or 0 for report in reports), default=0) or None,
        "p99_ns": max((report.p99_ns for report in reports if report.p99_ns is not None), default=None),
        "cpu": sum(report.cpu for report in rated),
    }


def _peer(peer: PeerState, now_ns: int) -> dict[str, Any]:
    report = peer.statistics
    condition = peer.gone or ("stopped" if peer.stopped else "done" if peer.finished else "")
    return {
        "id": peer.plan.id,
        "role": peer.plan.role if peer.identity is None else peer.identity.role,
        "host": "" if peer.identity is None else peer.identity.host,
        "pid": None if peer.identity is None else peer.identity.pid,
        "state": condition or ("ready" if peer.ready else "joined" if peer.joined else "expected"),
        "reason": peer.reason,
        "seen_s": round(max(now_ns - peer.last_seen_ns, 0) / 1e9, 1) if peer.joined else None,
        "rate": None if report is None else report.rate,
        "messages": None if report is None else report.messages,
        "p99_ns": None if report is None else report.p99_ns,
        "cpu": None if report is None else report.cpu,
        "looks": None if report is None else report.values.looks,
        "failed_looks": None if report is None else report.values.failed_looks,
        "gauges": [] if report is None else _gauges(report.by_gauge),
    }


def _gauges(readings: dict[str, float]) -> list[dict[str, Any]]:
    return [
        {"id": gauge.id, "title": gauge.title, "unit": gauge.unit, "value": readings[gauge.id]}
        for gauge in GAUGES
        if gauge.id in readings
    ]


def live_families(experiment: str, found: dict[str, Any]) -> list[MetricFamily]:
    """A sample for Prometheus."""
    rate = MetricFamily("crescendo_live_rate", "gauge", "Messages per second, as the peers reported last.")
    messages = MetricFamily("crescendo_live_messages", "counter", "Messages since the start of the run.")
    cpu = MetricFamily("crescendo_live_cpu_cores", "gauge", "Processor time per second of the peers.")
    for role in ROLES:
        values = found[role]
        rate.add(values["rate"], experiment=experiment, role=role)
        messages.add(values["messages"], experiment=experiment, role=role)
        cpu.add(values["cpu"], experiment=experiment, role=role)
    delay = MetricFamily("crescendo_live_response_p99_seconds", "gauge", "Worst p99 of a receiver, last second.")
    if (p99_ns := found["receiver"]["p99_ns"]) is not None:
        delay.add(p99_ns / 1e9, experiment=experiment)
    elapsed = MetricFamily("crescendo_live_elapsed_seconds", "gauge", "Since the first message was due.")
    elapsed.add(found.get("elapsed_s"), experiment=experiment)
    peers = MetricFamily("crescendo_live_peers", "gauge", "Peers by state.")
    states = [peer["state"] for peer in found["peers"]]
    for state in sorted(set(states)):
        peers.add(states.count(state), experiment=experiment, state=state)
    readings = MetricFamily("crescendo_live_reading", "gauge", "Highest reading of a gauge of the system, last look.")
    for peer in found["peers"]:
        for gauge in peer.get("gauges", ()):
            readings.add(gauge["value"], experiment=experiment, inspector=peer["id"], gauge=gauge["id"])
    return [rate, messages, cpu, delay, elapsed, peers, readings]
