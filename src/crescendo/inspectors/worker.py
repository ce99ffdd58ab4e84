"""How does an inspector process live from its first note to its last?

Join, look once to see that the system can be inspected at all, watch from the start of the run until told to stop,
close the recording, say so, leave. It decides nothing, and one that has lost its conductor stops by itself.
"""

import time
from pathlib import Path

from crescendo.control.notes import Command, Failure, Note, Start, Statistics
from crescendo.control.peer import Peer
from crescendo.inspectors.assignment import read_assignment
from crescendo.inspectors.base import Target
from crescendo.inspectors.registry import inspector_of
from crescendo.inspectors.watch import Watch
from crescendo.model.errors import ConfigError, CrescendoError, LostError
from crescendo.record.writer import Recorder

FIRST_LOOK_S = 10.0
LAST_LOOK_S = 1.0
_STEP_S = 0.02
_REPORT_NS = 10**9


class InspectorWorker:
    """One inspector process and what it is doing."""

    def __init__(self, peer: Peer) -> None:
        self._peer = peer
        self._recorder: Recorder | None = None
        self._watch: Watch | None = None
        self._t0_ns: int | None = None
        self._reported_ns = 0

    def live(self) -> None:
        """Serve requests, and look when it is time, until halted or orphaned."""
        while not self._peer.orphaned:
            note = self._peer.next_request(_STEP_S)
            if note is not None and not self._obey(note):
                break
            self._look()
        self._wind_up()

    def _obey(self, note: Note) -> bool:
        """Carry out one request; False when it was the last."""
        match note.command:
            case Command.SET:
                self._prepare(note)
            case Command.START_INSPECTOR:
                self._t0_ns = Start.from_payload(note.payload).t0_ns
                self._peer.accept(note)
            case Command.STOP_INSPECTOR:
                statistics = self._statistics()
                self._wind_up()
                self._peer.accept(note, statistics)
            case Command.HALT:
                return False
            case _:
                self._peer.accept(note)
        return True

    def _prepare(self, note: Note) -> None:
        try:
            assignment = read_assignment(note.payload)
            inspector = inspector_of(assignment.kind)(Target(assignment.endpoints, assignment.pid))
            self._recorder = Recorder(Path(assignment.run_dir), assignment.peer)
            self._watch = Watch(inspector, assignment.peer, assignment.every_ns, self._recorder)
            failure = self._watch.look_once(FIRST_LOOK_S)
        except CrescendoError as err:
            self._peer.refuse(note, Failure(str(err), "config" if isinstance(err, ConfigError) else "lost"))
            return
        if failure:
            self._peer.refuse(note, Failure(f"{assignment.peer}: {failure}", "peer"))
        else:
            self._peer.accept(note)

    def _look(self) -> None:
        now_ns = time.monotonic_ns()
        if self._watch is None or self._recorder is None or self._t0_ns is None or now_ns < self._t0_ns:
            return
        try:
            self._watch.step(self._t0_ns, now_ns)
            if now_ns - self._reported_ns >= _REPORT_NS:
                self._reported_ns = now_ns
                self._recorder.tick(now_ns)
                self._peer.report(self._statistics())
        except LostError as err:
            statistics = self._statistics()
            self._watch = None
            self._peer.fail(Failure(str(err), "lost"), statistics)

    def _statistics(self) -> Statistics:
        watch = self._watch
        values = {"cpu_seconds": time.process_time()}
        if watch is not None:
            values |= {"looks": watch.looks, "failed_looks": watch.failed, "missed_looks": watch.missed}
        return Statistics(time.monotonic_ns(), values=values)

    def _wind_up(self) -> None:
        """Close connections and recording; whatever is announced after this is on disk."""
        watch, self._watch = self._watch, None
        recorder, self._recorder = self._recorder, None
        if watch is not None:
            watch.close(LAST_LOOK_S)
        if recorder is not None:
            recorder.close()


def live_as_inspector(peer: Peer) -> None:
    """The whole life of an inspector process."""
    peer.join()
    try:
        InspectorWorker(peer).live()
    finally:
        peer.leave()
