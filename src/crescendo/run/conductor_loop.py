"""How are the conductor's decisions carried out?

The one place where notes, processes, signals and time meet the pure `step`. It turns what happens into events, feeds
them in, and does what comes back: sends requests, writes marks, and returns the outcome. It decides nothing itself.
"""

import json
import os
import socket
import time
from collections.abc import Callable, Sequence

from crescendo.control import topics
from crescendo.control.bus import Bus
from crescendo.control.conductor.commands import Conclude, RecordEvent, RunEnding, SendRequest
from crescendo.control.conductor.events import Event, Interrupted, PeerLost, Tick
from crescendo.control.conductor.plan import RunPlan
from crescendo.control.conductor.state import RunState
from crescendo.control.conductor.step import begin, step
from crescendo.control.conductor.translation import event_from_note, note_for
from crescendo.control.notes import Identity
from crescendo.model.errors import LostError
from crescendo.record.schema import EVENTS
from crescendo.record.writer import Recorder
from crescendo.run.peer_process import PeerProcess

CONDUCTOR = "conductor"
_TICK_NS = 100_000_000
_LISTEN_S = 0.05


class ConductorLoop:
    """Plays one run."""

    def __init__(self, bus: Bus, plan: RunPlan, peers: Sequence[PeerProcess]) -> None:
        self._bus = bus
        self._peers = peers
        self._identity = Identity(CONDUCTOR, CONDUCTOR, socket.gethostname(), os.getpid())
        self._run = begin(plan, time.monotonic_ns())
        self._marks: list[RecordEvent] = []
        self._outcome: RunEnding | None = None
        self._died: set[str] = set()

    def run(
        self,
        *,
        interrupted: Callable[[], bool],
        watch: Callable[[RunState], None],
        on_mark: Callable[[RecordEvent], None],
    ) -> RunEnding:
        """Until it is over. `interrupted` tells of a person's wish to stop, `watch` may show how it goes."""
        told = False
        next_tick_ns = 0
        while self._outcome is None:
            note = self._bus.next(_LISTEN_S)
            now_ns = time.monotonic_ns()
            if note is not None:
                event = event_from_note(note, now_ns)
                if event is not None:
                    self._feed(event, on_mark)
                continue  # first hear all that was said, then judge who was silent
            self._notice_deaths(now_ns, on_mark)
            if interrupted() and not told:
                told = True
                self._feed(Interrupted(now_ns), on_mark)
            if now_ns >= next_tick_ns:
                next_tick_ns = now_ns + _TICK_NS
                self._feed(Tick(now_ns), on_mark)
                watch(self._run)
            if not self._bus.connected:
                raise LostError("the control broker went away")
        return self._outcome

    def record_marks(self, recorder: Recorder) -> None:
        """Write what happened into the recording."""
        for mark in self._marks:
            recorder.append(EVENTS, 1, mark.t_ns, CONDUCTOR, mark.kind, json.dumps(mark.detail))

    def _feed(self, event: Event, on_mark: Callable[[RecordEvent], None]) -> None:
        self._run, commands = step(self._run, event)
        for command in commands:
            match command:
                case SendRequest(peer=peer):
                    self._bus.publish(topics.peer(peer), note_for(command, self._identity), qos=1)
                case RecordEvent():
                    self._marks.append(command)
                    on_mark(command)
                case Conclude(outcome):
                    self._outcome = outcome

    def _notice_deaths(self, now_ns: int, on_mark: Callable[[RecordEvent], None]) -> None:
        for peer in self._peers:
            if peer.peer not in self._died and (reason := peer.exit_reason) is not None:
                self._died.add(peer.peer)
                self._feed(PeerLost(peer.peer, reason, now_ns), on_mark)
