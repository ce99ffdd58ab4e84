"""What does a sender or receiver process do, from its first note to its last?

It connects to the system and attaches, runs its engine until that is done or is asked to stop, and closes the recording
before it reports so. One process, one role, many connections.
"""

import ctypes
import gc
import json
import select
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from crescendo.control.notes import Command, Note, Statistics
from crescendo.control.peer import Peer
from crescendo.control.peer_loop import PeerLoop
from crescendo.load.assignment import ConnectionSlot, LoadAssignment, quota_of
from crescendo.load.engine.echo import EchoReplies, EchoResponder
from crescendo.load.engine.receiver_engine import Receiver, ReceiverEngine
from crescendo.load.engine.request_spans import SpanSource
from crescendo.load.engine.sender import Sender
from crescendo.load.engine.sender_engine import SenderEngine
from crescendo.load.engine.summarizer import Summarizer
from crescendo.load.protocols.interfaces import LoadChannel
from crescendo.load.protocols.registry import driver_of
from crescendo.model.address import address_of
from crescendo.model.errors import CrescendoError, LostError, PeerError
from crescendo.model.experiment import Experiment
from crescendo.model.experiment_file import experiment_from
from crescendo.model.workload import Group, Settle
from crescendo.record.schema import EVENTS, SPANS
from crescendo.record.writer import Recorder

READY_TIMEOUT_S = 10.0
_SWITCH_INTERVAL_S = 0.000_2  # the recorder's thread must not hold the engine up for Python's default 5 ms
_PR_SET_TIMERSLACK = 29


class Worker(PeerLoop):
    """A sender or receiver process. Also the `Control` of its engine."""

    def __init__(self, peer: Peer, role: str) -> None:
        tune_for_latency()
        super().__init__(peer)
        self._role = role
        self._recorder: Recorder | None = None
        self._engine: SenderEngine | ReceiverEngine | None = None
        self._span_sources: list[SpanSource] = []
        # Opened before any connection: the sender engine waits for it with select, which takes no fd above 1,023.
        self._epoll = select.epoll() if role == "sender" else None

    # -- callbacks of the engine ---------------------------------------------------------------------------------

    def report(self, statistics: Statistics) -> None:
        self._record_spans()
        self._peer.report(statistics)

    def event(self, kind: str, detail: dict[str, object]) -> None:
        if self._recorder is not None:
            self._recorder.append(EVENTS, 1, time.monotonic_ns(), self._peer.identity.id, kind, json.dumps(detail))

    # -- preparing -----------------------------------------------------------------------------------------------

    def _prepare(self, assignment: dict[str, Any]) -> None:
        given = LoadAssignment.from_payload(assignment)
        experiment = experiment_from(given.experiment)
        groups = {group.name: group for group in experiment.workload}
        channels = self._connect(given, groups)
        self._recorder = Recorder(Path(given.run_dir), given.peer)
        self._engine = self._make_engine(given, experiment, groups, channels)

    def _connect(self, assignment: LoadAssignment, groups: dict[str, Group]) -> list[Any]:
        channels: list[LoadChannel] = []
        try:
            for slot in assignment.places:
                channels.append(self._dialler(assignment, groups, slot)(0))
            self._await_ready(channels)
        except CrescendoError:
            for channel in channels:
                channel.close()
            raise
        return channels

    def _dialler(
        self, assignment: LoadAssignment, groups: dict[str, Group], slot: ConnectionSlot
    ) -> Callable[[int], Any]:
        """A function that dials one slot: its first address on attempt 0, the next of its addresses on each retry."""
        group = groups[slot.group].member(slot.index)
        make = driver_of(group.protocol, self._role)

        def dial(attempt: int) -> Any:
            text = group.addresses[attempt % len(group.addresses)]
            url = address_of(text).url or assignment.urls[group.protocol]
            channel = make(url, msgspec.structs.replace(group, address=text))
            if isinstance(channel, SpanSource):
                self._span_sources.append(channel)
            return channel

        return dial

    def _await_ready(self, channels: list[Any]) -> None:
        deadline = time.monotonic() + READY_TIMEOUT_S
        waiting = channels
        while waiting:
            for channel in waiting:
                channel.flush()
                for _ in channel.pump():
                    pass  # nothing can arrive: receivers grant their first credit when the engine starts
                if channel.closed is not None:
                    raise PeerError(channel.closed)
            waiting = [channel for channel in waiting if not channel.ready]
            if time.monotonic() > deadline:
                raise PeerError(f"the system did not answer {len(waiting)} connection(s) within {READY_TIMEOUT_S:g} s")
            if waiting:
                time.sleep(0.002)
                self._stop_request = self._stop_request or self._peer.next_request(0.0)  # which keeps the lease

    def _make_engine(
        self, assignment: LoadAssignment, experiment: Experiment, groups: dict[str, Group], channels: list[Any]
    ) -> SenderEngine | ReceiverEngine:
        log = self._recorder
        if log is None:
            raise LostError("no recording to write to")
        senders, receivers = [], []
        for slot, channel in zip(assignment.places, channels, strict=True):
            group = groups[slot.group].member(slot.index)
            redial = None if group.failover is None else self._dialler(assignment, groups, slot)
            if self._role == "sender":
                pacer = experiment.pacer_of(group, slot.id)
                quota = quota_of(pacer, experiment.phases)
                senders.append(
                    Sender(
                        slot.id,
                        group,
                        pacer,
                        quota,
                        channel,
                        assignment.tag,
                        seed=experiment.seed,
                        redial=redial,
                        replies=self._replies(assignment, group, slot.id),
                    )
                )
            else:
                summarizer = self._summarizer(assignment, group, slot.id)
                echo = self._echo(assignment, group)
                receivers.append(Receiver(slot.id, group, channel, redial=redial, summarizer=summarizer, echo=echo))
        if self._role == "sender":
            return SenderEngine(senders, log, self, drain_ns=experiment.phases.drain, epoll=self._epoll)
        return ReceiverEngine(receivers, log, self, tag=assignment.tag)

    def _summarizer(self, assignment: LoadAssignment, group: Group, receiver: int) -> Summarizer | None:
        if group.summarize is None:
            return None
        side_group = Group(address=group.summarize.to, protocol=group.protocol, settle=Settle.AT_MOST_ONCE)
        return Summarizer(group.summarize, receiver, self._side_channel(assignment, group, "sender", side_group))

    def _replies(self, assignment: LoadAssignment, group: Group, sender: int) -> EchoReplies | None:
        if not group.is_answered:
            return None
        channel = self._side_channel(assignment, group, "receiver", group.reply_group(sender))
        return EchoReplies(channel, sender, assignment.tag)

    def _echo(self, assignment: LoadAssignment, group: Group) -> EchoResponder | None:
        if not group.is_answered:
            return None
        numbers = assignment.answered[group.name]
        channels = {
            number: self._side_channel(assignment, group, "sender", group.reply_group(number)) for number in numbers
        }
        return EchoResponder(channels, assignment.tag)

    def _side_channel(self, assignment: LoadAssignment, group: Group, role: str, side_group: Group) -> Any:
        """A connection to the group's system beside those of the load."""
        channel = driver_of(group.protocol, role)(group.target.url or assignment.urls[group.protocol], side_group)
        self._await_ready([channel])
        return channel

    # -- running and ending --------------------------------------------------------------------------------------

    def _start(self, t0_ns: int) -> None:
        engine = self._engine
        if engine is None:
            return
        self._statistics = engine.run(t0_ns) if isinstance(engine, SenderEngine) else engine.run()
        failure = engine.failure  # read before `_shut_down` closes the connections
        self._shut_down()
        if self._stop_request is not None:
            return  # the peer loop answers that request next
        if failure is not None:
            raise PeerError(failure)
        self._peer.finish(self._statistics)

    def _receive(self, note: Note) -> None:
        if note.command is Command.DRAIN and isinstance(self._engine, ReceiverEngine):
            self._engine.draining = True
        super()._receive(note)

    def _record_spans(self) -> None:
        log, source = self._recorder, self._peer.identity.id
        if log is None:
            return
        for action, outcome, ended_ns, duration_ns, sample_every in (
            spans for channel in self._span_sources for spans in channel.take_spans()
        ):
            log.append(SPANS, len(ended_ns), ended_ns, source, action, duration_ns, float(sample_every), outcome, "")

    def _shut_down(self) -> None:
        self._record_spans()
        engine, self._engine = self._engine, None
        recorder, self._recorder = self._recorder, None
        if engine is not None:
            engine.close()
        if recorder is not None:
            recorder.close()


def tune_for_latency() -> None:
    """Shorten Python's thread switch interval, exempt everything imported from garbage collection, and set the Linux
    timer slack to its minimum: by default a process is woken up to 50 µs late."""
    sys.setswitchinterval(_SWITCH_INTERVAL_S)
    gc.freeze()
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_TIMERSLACK, 1, 0, 0, 0)
