"""What is the state of the run and of each peer?

The state that the conductor carries from event to event, and queries on it. Immutable: every change is a new value.
Answers queries; the conductor decides which commands follow.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Literal

from crescendo.control import notes
from crescendo.control.conductor.commands import (
    Ended,
    EndState,
    LimitExceeded,
    PeerEnding,
    RateChange,
    SendRequest,
)
from crescendo.control.conductor.plan import PeerPlan, Role, RunPlan
from crescendo.control.notes import Hello, Identity, Statistics


class Stage(StrEnum):
    """The progress of the run. Stages follow in this order; some may be skipped, none is entered twice."""

    GATHERING = "gathering"
    PREPARING_RECEIVERS = "preparing receivers and inspectors"
    PREPARING_SENDERS = "preparing senders"
    RUNNING = "running"
    DRAINING = "draining"
    STOPPING = "stopping"
    DONE = "done"


BEFORE_BARRIER = (Stage.GATHERING, Stage.PREPARING_RECEIVERS, Stage.PREPARING_SENDERS)


@dataclass(frozen=True, slots=True)
class PeerState:
    """What is known about one peer."""

    plan: PeerPlan
    identity: Identity | None = None
    hello: Hello | None = None
    last_seen_ns: int = 0  # the last sign of life
    pending: tuple[notes.Command, int] | None = None  # the open request and its correlation
    ready: bool = False  # has accepted SET
    start_request: int | None = None  # the correlation of START until it is accepted
    finished: bool = False  # reports that its part is done
    stop_requested_ns: int | None = None
    stopped: bool = False  # has accepted STOP, so its recording is closed
    gone: Literal["failed", "lost"] | None = None
    reason: str = ""
    statistics: Statistics | None = None
    unconfirmed: tuple[int, int] | None = None  # a change of rate: its correlation, and when it takes effect

    @property
    def joined(self) -> bool:
        return self.identity is not None

    @property
    def done_sending(self) -> bool:
        """Whether no more load is expected from it."""
        return self.finished or self.stopped or self.gone is not None

    @property
    def preparing(self) -> bool:
        return self.pending is not None and self.pending[0] is notes.Command.SET and not self.ready

    @property
    def present(self) -> bool:
        """Whether it still accepts requests."""
        return self.joined and self.gone is None

    def lease_ended(self, now_ns: int, lease_ns: int) -> bool:
        # A peer that is connecting or closing its recording cannot report; prepare_ns and stop_ns limit that.
        return not self.preparing and self.stop_requested_ns is None and now_ns - self.last_seen_ns > lease_ns

    def ignores_start(self, waited_ns: int, lease_ns: int) -> bool:
        return self.start_request is not None and self.stop_requested_ns is None and waited_ns > lease_ns

    def ignores_stop(self, now_ns: int, stop_ns: int) -> bool:
        return not self.stopped and self.stop_requested_ns is not None and now_ns - self.stop_requested_ns >= stop_ns

    def seen(self, now_ns: int, statistics: Statistics | None = None) -> "PeerState":
        """Record a sign of life. Statistics that arrive out of order are dropped."""
        if statistics is None or (self.statistics is not None and statistics.t_ns < self.statistics.t_ns):
            statistics = self.statistics
        return replace(self, last_seen_ns=max(self.last_seen_ns, now_ns), statistics=statistics)

    def ending(self, state: EndState) -> PeerEnding:
        ended: Ended = "stopped"
        if self.gone is not None:
            ended = self.gone
        elif self.finished or (self.plan.role != "sender" and state == "sealed"):
            ended = "finished"  # only senders finish by themselves: the others end with the drain
        return PeerEnding(
            self.plan.id, self.plan.role, self.identity, self.hello, ended, self.reason, self.statistics
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class RunState:
    """Everything the conductor knows. Created by `step.begin`."""

    plan: RunPlan
    entered_ns: int  # when the current stage began
    peers: dict[str, PeerState]
    stage: Stage = Stage.GATHERING
    correlation: int = 0  # of the latest request
    state: EndState = "sealed"  # the end state so far; never returns to sealed
    reason: str = ""
    t0_ns: int | None = None
    cut_ns: int | None = None  # when sending was cut short
    drain_until_ns: int = 0
    exceeded: LimitExceeded | None = None  # the limit that stopped it
    complete_ns: int | None = None  # since when everything owed has arrived
    rate_changes: tuple[RateChange, ...] = ()
    progress: tuple[int, int] = field(default=(0, 0))  # messages so far, and when the count last grew

    def of(self, *roles: Role) -> list[PeerState]:
        return [peer for peer in self.peers.values() if peer.plan.role in roles]

    @property
    def present(self) -> list[PeerState]:
        return [peer for peer in self.peers.values() if peer.present]

    def with_peer(self, peer: PeerState) -> "RunState":
        return replace(self, peers={**self.peers, peer.plan.id: peer})

    def entering(self, stage: Stage, now_ns: int) -> "RunState":
        return replace(self, stage=stage, entered_ns=now_ns)

    def with_requests(
        self,
        peers: Iterable[PeerState],
        command: notes.Command,
        payload: Callable[[PeerState], dict[str, Any]] = lambda peer: {},
    ) -> tuple["RunState", tuple[SendRequest, ...]]:
        """Open a request to each of the peers. Answers to earlier requests are ignored from here on."""
        pending, requests = dict(self.peers), []
        correlation = self.correlation
        for peer in peers:
            correlation += 1
            pending[peer.plan.id] = replace(peer, pending=(command, correlation))
            requests.append(SendRequest(peer.plan.id, command, correlation, payload(peer)))
        return replace(self, peers=pending, correlation=correlation), tuple(requests)

    def with_progress(self, now_ns: int) -> "RunState":
        messages = sum(peer.statistics.messages for peer in self.peers.values() if peer.statistics)
        return replace(self, progress=(messages, now_ns)) if messages > self.progress[0] else self

    @property
    def everything_arrived(self) -> bool:
        """Whether for every address as many messages were received as are owed."""
        sent, received = self._totals("sender"), self._totals("receiver")
        owed = {address: count * self.plan.fan_out.get(address, 1) for address, count in sent.items()}
        return all(received.get(address, 0) >= count for address, count in owed.items())

    def phases(self, now_ns: int) -> tuple[tuple[str, int, int], ...]:
        """The actual phases, if the run ends now."""
        if self.t0_ns is None:
            return ()
        measure_ns = self.t0_ns + self.plan.warmup_ns
        end_ns = self._last_sent_ns(now_ns) if self.plan.measure_ns is None else measure_ns + self.plan.measure_ns
        if self.cut_ns is not None:  # a planned phase that did not happen would look like a low rate
            measure_ns = min(measure_ns, max(self.cut_ns, self.t0_ns))
            end_ns = min(end_ns, self.cut_ns)
        end_ns = max(end_ns, measure_ns)
        warmup = (("warmup", self.t0_ns, measure_ns),) if measure_ns > self.t0_ns else ()
        return (*warmup, ("measure", measure_ns, end_ns), ("drain", end_ns, max(now_ns, end_ns)))

    def _totals(self, role: Role) -> dict[str, int]:
        totals: dict[str, int] = {}
        for peer in self.of(role):
            for address, count in (peer.statistics.counts if peer.statistics else {}).items():
                totals[address] = totals.get(address, 0) + count
        return totals

    def _last_sent_ns(self, now_ns: int) -> int:
        reported = [peer.statistics.values.last_sent_ns for peer in self.of("sender") if peer.statistics]
        last = max((sent_ns for sent_ns in reported if sent_ns is not None), default=0.0)
        # A float holds nanoseconds exactly for 104 days of uptime; beyond that, add one unit in the last place.
        return int(last + max(1.0, math.ulp(last))) if last else now_ns
