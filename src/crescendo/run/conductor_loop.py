"""How are the conductor's decisions executed?

The one place where notes, processes, signals and time meet the pure `step`. It turns notes, process exits, interrupts
and ticks into events, feeds them in, and executes the resulting commands: it sends requests, collects events for the
recording, and returns how the run ended. It decides nothing itself.
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
    """Runs the conductor of one run."""

    def __init__(self, bus: Bus, plan: RunPlan, peers: Sequence[PeerProcess]) -> None:
        self._bus = bus
        self._peers = peers
        self._identity = Identity(CONDUCTOR, CONDUCTOR, socket.gethostname(), os.getpid())
        self._run = begin(plan, time.monotonic_ns())
        self._events: list[RecordEvent] = []
        self._ending: RunEnding | None = None
        self._exited: set[str] = set()

    def run(
        self,
        *,
        interrupted: Callable[[], bool],
        watch: Callable[[RunState], None],
        on_event: Callable[[RecordEvent], None],
    ) -> RunEnding:
        """Run until the end. `interrupted` says whether the user asked to stop; `watch` may show the progress."""
        interrupt_sent = False
        next_tick_ns = 0
        while self._ending is None:
            note = self._bus.next(_LISTEN_S)
            now_ns = time.monotonic_ns()
            if note is not None:
                event = event_from_note(note, now_ns)
                if event is not None:
                    self._feed(event, on_event)
                continue  # process every waiting note before deciding which peers were silent
            self._report_exits(now_ns, on_event)
            if interrupted() and not interrupt_sent:
                interrupt_sent = True
                self._feed(Interrupted(now_ns), on_event)
            if now_ns >= next_tick_ns:
                next_tick_ns = now_ns + _TICK_NS
                self._feed(Tick(now_ns), on_event)
                watch(self._run)
            if not self._bus.connected:
                raise LostError("the connection to the control broker was lost")
        return self._ending

    def record_events(self, recorder: Recorder) -> None:
        """Write the events of the run to the recording."""
        for event in self._events:
            recorder.append(EVENTS, 1, event.t_ns, CONDUCTOR, event.kind, json.dumps(event.detail))

    def _feed(self, event: Event, on_event: Callable[[RecordEvent], None]) -> None:
        self._run, commands = step(self._run, event)
        for command in commands:
            match command:
                case SendRequest(peer=peer):
                    self._bus.publish(topics.peer(peer), note_for(command, self._identity), qos=1)
                case RecordEvent():
                    self._events.append(command)
                    on_event(command)
                case Conclude(ending):
                    self._ending = ending

    def _report_exits(self, now_ns: int, on_event: Callable[[RecordEvent], None]) -> None:
        for peer in self._peers:
            if peer.peer not in self._exited and (reason := peer.exit_reason) is not None:
                self._exited.add(peer.peer)
                self._feed(PeerLost(peer.peer, reason, now_ns), on_event)
