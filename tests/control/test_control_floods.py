"""A flood in every phase of a run: its deadlines hold, and Ctrl-C takes less than a second.

A thousand notes per second come from somebody who holds the key of the run, and as many from a stranger.
"""

import secrets
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from crescendo.control.conductor.commands import RunEnding
from crescendo.control.conductor.plan import PeerPlan, RunPlan
from crescendo.control.notes import Command, Identity, Note, NoteKind, Statistics, encode_note
from crescendo.control.peer import Peer, identity_of_this_process
from crescendo.control.topics import Topics
from crescendo.control.trust import NoteScope, new_lab, new_run_name
from crescendo.run.conductor_loop import ConductorLoop
from crescendo.systems.instance import RunningInstance
from mqtt_stranger import TIMEOUT_S, Stranger

pytestmark = pytest.mark.quiet  # flood, conductor and peers share the cores, and seconds are counted

PER_S = 1000  # of each of the two
LATE_S = 1.2  # a deadline waits for the notes that are queued, at most a second, and is looked at ten times a second
INTERRUPT_S = 1.0
ADDRESS = "queue://perf"
MS = 1_000_000


class Flood:
    """Notes of a run, every second one with another key, as fast as they were asked for."""

    def __init__(self, stranger: Stranger, run: NoteScope) -> None:
        self._stranger, self._run, self._topic = stranger, run, Topics(run.name).notifications
        self._keys = (run, NoteScope(run.name, secrets.token_bytes(32)))
        self._over = threading.Event()
        self._begun_s = time.monotonic()
        self._thread = threading.Thread(target=self._publish)
        self._thread.start()

    def _publish(self) -> None:
        sender = Identity("sender-7", "sender", "h", 7, 7)
        counter = 0
        while not self._over.wait(0.01):
            while counter < (time.monotonic() - self._begun_s) * PER_S:
                counter += 1
                body = encode_note(Note(NoteKind.NOTIFICATION, Command.NOTIFY_SUCCESS, 0, sender, {}), counter)
                for key in self._keys:
                    self._stranger.client.publish(self._topic, body + key.tag(self._topic, body))

    def end(self) -> float:
        """How many the broker has delivered, per second."""
        passed_s = time.monotonic() - self._begun_s
        delivered = len(self._stranger.of(self._run))
        self._over.set()
        self._thread.join()
        return delivered / passed_s


@dataclass
class Scripted:
    """A peer that follows the protocol, until a request that it does not answer."""

    id: str
    role: str
    ignores: Command | None = None  # and says nothing more
    finishes: bool = True
    counts: dict[str, int] = field(default_factory=dict)
    asked_s: dict[Command, float] = field(default_factory=dict)  # when each request came

    def act(self, url: str, run: NoteScope, over: threading.Event) -> None:
        peer = Peer(url, run, identity_of_this_process(self.id, self.role))
        peer.join(TIMEOUT_S)
        silent = False
        while not over.is_set():
            request = peer.next_request(0.05)
            if request is not None:
                self.asked_s.setdefault(request.command, time.monotonic())
                silent = silent or request.command is self.ignores
            if silent:
                continue
            if request is not None:
                peer.accept(request, self._statistics())
                if request.command is Command.START_SENDER and self.finishes:
                    peer.finish(self._statistics())
            peer.report(self._statistics())
        peer.close()

    def _statistics(self) -> Statistics:
        return Statistics(time.monotonic_ns(), self.counts, sum(self.counts.values()))


@dataclass(frozen=True)
class Deadline:
    """Which peers take part, what they do not do, and how the run ends for that reason, how long after what."""

    peers: Sequence[Scripted]
    limits: dict[str, int]
    ends: tuple[str, str]  # state and reason
    after: tuple[str, Command] | None  # None: after the beginning
    within_s: float


def sender(**changes: Any) -> Scripted:
    return Scripted("sender-0", "sender", counts={ADDRESS: 5}, **changes)


def receiver(**changes: Any) -> Scripted:
    return Scripted("receiver-0", "receiver", **changes)


PHASES: dict[str, Callable[[], Deadline]] = {
    "gathering": lambda: Deadline(
        [], {"gather_ns": 300 * MS}, ("refused", "receiver-0, sender-0 did not join within 0.3 s"), None, 0.3
    ),
    "preparing": lambda: Deadline(
        [sender(), receiver(ignores=Command.SET)],
        {"prepare_ns": 300 * MS},
        ("refused", "receiver-0 did not get ready within 0.3 s"),
        ("receiver-0", Command.SET),
        0.3,
    ),
    "running": lambda: Deadline(
        [sender(ignores=Command.START_SENDER), receiver()],
        {"lease_ns": 1000 * MS},
        ("incomplete", "lost sender-0: no report for 1 s"),
        ("sender-0", Command.START_SENDER),
        1.0 + 0.5,  # and what has arrived is drained
    ),
    "draining": lambda: Deadline(
        [sender(), receiver()], {"drain_ns": 400 * MS}, ("sealed", ""), ("receiver-0", Command.DRAIN), 0.4
    ),
    "stopping": lambda: Deadline(
        [sender(), receiver(ignores=Command.STOP_RECEIVER)],
        {"drain_ns": 0, "stop_ns": 300 * MS},
        ("incomplete", "lost receiver-0: did not stop within 0.3 s"),
        ("receiver-0", Command.STOP_RECEIVER),
        0.3,
    ),
}
HELD = {
    "gathering": lambda: [],
    "preparing": lambda: [sender(), receiver(ignores=Command.SET)],
    "running": lambda: [sender(finishes=False), receiver()],
    "draining": lambda: [sender(), receiver()],
}
"""Phase -> peers that make it last."""


class FloodedRun:
    """The scope of a run that is flooded, and conductors one after the other."""

    def __init__(self, url: str, run: NoteScope) -> None:
        self.url, self.run = url, run

    def conduct(
        self, peers: Sequence[Scripted], interrupt: Callable[[ConductorLoop], bool] = lambda _: False, **limits: int
    ) -> tuple[RunEnding, float, float]:
        """How it ended, when it began and when it was over."""
        planned = (PeerPlan("receiver-0", "receiver", {}), PeerPlan("sender-0", "sender", {}))
        values = {"warmup_ns": 0, "measure_ns": 100 * MS, "drain_ns": 20_000 * MS, "start_delay_ns": 50 * MS} | limits
        loop = ConductorLoop(self.url, self.run, RunPlan(planned, fan_out={ADDRESS: 1}, **values), lambda: None)
        loop.connect()
        over = threading.Event()
        threads = [threading.Thread(target=peer.act, args=(self.url, self.run, over)) for peer in peers]
        begun_s = time.monotonic()
        for thread in threads:
            thread.start()
        try:
            ending = loop.run(
                [], interrupted=lambda: interrupt(loop), watch=lambda _: None, on_event=lambda _: None
            )  # fmt: skip
            ended_s = time.monotonic()
        finally:
            over.set()
            for thread in threads:
                thread.join()
            loop.close()
        return ending, begun_s, ended_s


@pytest.fixture(scope="module")
def flooded(mosquitto: RunningInstance) -> Iterator[FloodedRun]:
    run = new_lab().scope_of(new_run_name())
    stranger = Stranger(mosquitto.url)
    flood = Flood(stranger, run)
    yield FloodedRun(mosquitto.url, run)
    per_s = flood.end()
    stranger.close()
    assert per_s > 0.8 * 2 * PER_S, "it was a flood"


@pytest.mark.parametrize("phase", PHASES)
def test_no_flood_delays_a_deadline(flooded: FloodedRun, phase: str) -> None:
    wanted = PHASES[phase]()
    ending, begun_s, ended_s = flooded.conduct(wanted.peers, **wanted.limits)
    assert (ending.state, ending.reason) == wanted.ends
    if wanted.after is not None:
        name, command = wanted.after
        begun_s = next(peer.asked_s[command] for peer in wanted.peers if peer.id == name)
    assert ended_s - begun_s < wanted.within_s + LATE_S


@pytest.mark.parametrize("phase", HELD)
def test_no_flood_delays_ctrl_c(flooded: FloodedRun, phase: str) -> None:
    asked_s: list[float] = []

    def interrupt(loop: ConductorLoop) -> bool:
        if not asked_s and loop._run.stage.value.startswith(phase):
            asked_s.append(time.monotonic())
        return bool(asked_s)

    ending, _, ended_s = flooded.conduct(HELD[phase](), interrupt, measure_ns=60_000 * MS)
    assert ending.state == "interrupted"
    assert ended_s - asked_s[0] < INTERRUPT_S
