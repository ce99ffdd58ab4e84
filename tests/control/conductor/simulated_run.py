"""A conductor with simulated peers in virtual time.

The peers follow the protocol page and do nothing else; one delivery per note decides what the network does with it, on
its way from a peer and to a peer. What the tests assert (which peer was ready, has started, died when) is recorded
here, not read from the conductor.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from itertools import chain, repeat

from msgspec import UNSET

from crescendo.control.conductor.commands import Conclude, RecordEvent, RunEnding, SendRequest
from crescendo.control.conductor.events import (
    Event,
    Interrupted,
    PeerAnswered,
    PeerFailed,
    PeerFinished,
    PeerJoined,
    PeerLost,
    PeerReported,
    SystemEnded,
    Tick,
)
from crescendo.control.conductor.plan import PeerPlan, RunPlan
from crescendo.control.conductor.step import begin, step
from crescendo.control.notes import START_COMMANDS, Command, Failure, Hello, Identity, Statistics
from crescendo.model.peer_statistics import PeerStatistics

MS = 1_000_000
SECOND = 1_000 * MS
TICK = 100 * MS
START = 5_000 * SECOND  # monotonic clocks do not start at zero
ADDRESS = "queue://perf"
RATE = 1000
LATE_NS = 700 * MS

DELIVER, DROP, TWICE, LATE = "deliver", "drop", "twice", "late"


def plan(senders: int = 1, receivers: int = 1, *, inspectors: int = 0, **changes: object) -> RunPlan:
    peers = [PeerPlan(f"receiver-{n}", "receiver", {"n": n}) for n in range(receivers)]
    peers += [PeerPlan(f"sender-{n}", "sender", {"n": n}) for n in range(senders)]
    peers += [PeerPlan(f"inspector-{n}", "inspector", {"n": n}) for n in range(inspectors)]
    values: dict[str, object] = {
        "warmup_ns": SECOND, "measure_ns": 2 * SECOND, "drain_ns": 5 * SECOND, "fan_out": {ADDRESS: 1},
    }  # fmt: skip
    return RunPlan(peers=tuple(peers), **(values | changes))  # type: ignore[arg-type]


class SimulatedRun:
    """Peers that follow the protocol, unless a test makes them die, fail, stay silent or never finish."""

    def __init__(
        self, plan: RunPlan, deliveries: Iterable[str] = (), requests: Iterable[str] = (), *, share: float = 1.0
    ) -> None:
        """`deliveries` of the notes of peers, `requests` of those of the conductor."""
        self.plan = plan
        self.now_ns = START
        self.run = begin(plan, START)
        self.roles = {peer.id: peer.role for peer in plan.peers}
        self.last_second: dict[str, float] = {}  # values that receivers report for their last second
        self.last_second_of: dict[str, dict[str, float]] = {}  # the same, by slice
        self.commands: list[tuple[int, SendRequest | RecordEvent | Conclude]] = []
        self.ending: RunEnding | None = None
        self.refusals: dict[tuple[str, Command], Failure] = {}
        self.ignored: set[tuple[str, Command]] = set()  # requests that a peer never answers
        self.silent: set[str] = set()  # alive, but without reports
        self.dead: dict[str, int] = {}
        self.endless: set[str] = set()
        self.accepted: set[tuple[str, Command]] = set()  # answers that reached the conductor
        self.started: set[str] = set()  # peers that were given their start time
        self.new_rates: Counter[str] = Counter()  # peer -> changes of rate that it was given
        self.more = 0  # arrivals that a test adds
        self.report_ns = TICK  # how often peers report
        self._share = share  # the fraction of the owed messages that arrives
        self._deliveries = chain(deliveries, repeat(DELIVER))
        self._request_deliveries = chain(requests, repeat(DELIVER))
        self._later: list[tuple[int, Event | SendRequest]] = []
        self._asked: dict[int, Command] = {}  # correlation -> what the conductor asked for
        self._handled: set[int] = set()  # a peer carries out a request once
        self._t0_ns: dict[str, int] = {}
        self._done: set[str] = set()
        self._halted: set[str] = set()

    # events

    def feed(self, event: Event) -> None:
        if isinstance(event, PeerAnswered) and event.ok:
            self.accepted.add((event.peer, self._asked[event.correlation]))
        was_over = self.ending is not None
        self.run, commands = step(self.run, event)
        assert not (was_over and commands), f"{event} after the end led to {commands}"
        self.commands += [(self.now_ns, command) for command in commands]
        for command in commands:
            if isinstance(command, SendRequest):
                self._asked[command.correlation] = command.command
                self._request(command)
            elif isinstance(command, Conclude):
                assert command is commands[-1]
                self.ending = command.ending

    def join_all(self) -> None:
        for number, peer in enumerate(self.roles):
            self._send(
                PeerJoined(peer, Identity(peer, self.roles[peer], "host", 100 + number), Hello(7, "1"), self.now_ns)
            )

    def kill(self, peer: str, *, will: bool = True) -> None:
        self.dead.setdefault(peer, self.now_ns)
        if will:
            self.feed(PeerLost(peer, "its control connection broke", self.now_ns))

    def fail(self, peer: str, fault: str) -> None:
        failure = Failure("the system closed the connection", fault)  # type: ignore[arg-type]
        self.feed(PeerFailed(peer, failure, self.statistics(peer), self.now_ns))

    def end_system(self, how: str) -> None:
        self.feed(SystemEnded(how, "", self.now_ns))

    def interrupt(self) -> None:
        self.feed(Interrupted(self.now_ns))

    def advance(self, seconds: float, until: str = "") -> None:
        """Let time pass, at most until the first request of this name."""
        end_ns = self.now_ns + int(seconds * SECOND)
        while self.now_ns < end_ns and self.ending is None and not (until and self.requested(until)):
            self.now_ns += TICK
            due = [note for due_ns, note in self._later if due_ns <= self.now_ns]
            self._later = [(due_ns, note) for due_ns, note in self._later if due_ns > self.now_ns]
            for note in due:
                if isinstance(note, SendRequest):
                    self._handle(note)
                else:
                    self.feed(replace(note, now_ns=self.now_ns))  # stamped when received, not when sent
            self._peers_act()
            self.feed(Tick(self.now_ns))

    # observations

    def requested(self, command: str, peer: str = "") -> list[int]:
        """When the request was sent."""
        return [
            t_ns
            for t_ns, given in self.commands
            if isinstance(given, SendRequest) and given.command.name == command and peer in {"", given.peer}
        ]

    def events(self, kind: str) -> list[RecordEvent]:
        return [given for _, given in self.commands if isinstance(given, RecordEvent) and given.kind == kind]

    def ended(self) -> dict[str, str]:
        assert self.ending is not None
        return {peer.id: peer.ended for peer in self.ending.peers}

    # the peers

    def _request(self, request: SendRequest) -> None:
        delivery = next(self._request_deliveries)
        if delivery == LATE:
            self._later.append((self.now_ns + LATE_NS, request))
        elif delivery != DROP:
            for _ in range(2 if delivery == TWICE else 1):
                self._handle(request)

    def _handle(self, request: SendRequest) -> None:
        peer, command = request.peer, request.command
        gone = peer in self.dead or peer in self._halted
        if gone or (peer, command) in self.ignored or request.correlation in self._handled:
            return
        self._handled.add(request.correlation)
        if command is Command.HALT:
            self._halted.add(peer)
            return
        if command in START_COMMANDS:
            self._t0_ns[peer] = request.payload["t0_ns"]
            self.started.add(peer)
        self.new_rates[peer] += "rate" in request.payload.get("options", {})
        if command in {Command.STOP_SENDER, Command.STOP_RECEIVER}:
            self._done.add(peer)
        failure = self.refusals.get((peer, command))
        answer = Command.OK if failure is None else Command.PROTOCOL_ERROR
        statistics = self.statistics(peer) if command.name.startswith("STOP") else None
        self._send(
            PeerAnswered(peer, request.correlation, answer, failure is None, failure, statistics, self.now_ns),
            delay_ns=1,
        )

    def _peers_act(self) -> None:
        for peer, role in self.roles.items():
            if peer in self.dead or peer in self.silent or peer in self._halted:
                continue
            if (self.now_ns - START) % self.report_ns == 0:
                self._send(PeerReported(peer, self.statistics(peer), self.now_ns))
            t0_ns = self._t0_ns.get(peer)
            length_ns = self.plan.warmup_ns + (self.plan.measure_ns or 2 * SECOND)
            due = t0_ns is not None and self.now_ns >= t0_ns + length_ns
            if role == "sender" and due and peer not in self._done | self.endless:
                self._done.add(peer)
                self._send(PeerFinished(peer, self.statistics(peer), self.now_ns))

    def statistics(self, peer: str) -> Statistics:
        if self.roles[peer] == "inspector":
            return Statistics(self.now_ns)
        count = self._count(peer)
        last_sent_ns = float(self._t0_ns.get(peer, self.now_ns) + count * MS)
        last_second = self.last_second if self.roles[peer] == "receiver" else {}
        values = PeerStatistics(last_sent_ns=last_sent_ns, **last_second)
        slices = {name: PeerStatistics(**measured) for name, measured in self.last_second_of.items()}
        return Statistics(self.now_ns, {ADDRESS: count}, count, RATE, None, 0.1, values, slices or UNSET)

    def _count(self, peer: str) -> int:
        if self.roles[peer] == "receiver":
            receivers = [one for one, role in self.roles.items() if role == "receiver"]
            sent = sum(self._count(one) for one, role in self.roles.items() if role == "sender")
            arrived = int(sent * self.plan.fan_out[ADDRESS] * self._share) + self.more
            return arrived // len(receivers) + (arrived % len(receivers) if peer == receivers[0] else 0)
        t0_ns = self._t0_ns.get(peer)
        if t0_ns is None:
            return 0
        end_ns = t0_ns + self.plan.warmup_ns + (self.plan.measure_ns or 2 * SECOND)
        return max(0, min(self.dead.get(peer, self.now_ns), end_ns) - t0_ns) * RATE // SECOND

    def _send(self, event: Event, delay_ns: int = 0) -> None:
        delivery = next(self._deliveries)
        if delivery == DROP:
            return
        if delivery == LATE:
            delay_ns = LATE_NS
        for _ in range(2 if delivery == TWICE else 1):
            if delay_ns:
                self._later.append((self.now_ns + delay_ns, event))
            else:
                self.feed(event)
