"""What does a sender or receiver process do, from its first note to its last?

It connects to the system and attaches, runs its engine until that is done or is asked to stop, and closes the recording
before it reports so. One process, one role, many connections: all by our own drivers, or all by a foreign client.
"""

import json
import select
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from crescendo.control.notes import Statistics
from crescendo.control.peer import Peer
from crescendo.control.peer_loop import PeerLoop
from crescendo.load.assignment import ConnectionSlot, LoadAssignment, quota_of
from crescendo.load.end_conditions import Drain, exceeded_limit
from crescendo.load.engine.echo import EchoReplies, EchoResponder
from crescendo.load.engine.receiver_engine import Receiver, ReceiverEngine
from crescendo.load.engine.request_spans import SpanSource
from crescendo.load.engine.sender import Sender
from crescendo.load.engine.sender_engine import SenderEngine
from crescendo.load.engine.stalls import STALL
from crescendo.load.engine.summarizer import Summarizer
from crescendo.load.held_messages import describe, destinations_to_look_at, look_at
from crescendo.load.jms.jms_receiver_engine import JmsReceiverEngine
from crescendo.load.jms.jms_sender_engine import JmsSenderEngine
from crescendo.load.latency_tuning import tune_for_latency
from crescendo.load.protocols.registry import driver_of
from crescendo.model.address import address_of
from crescendo.model.changed_rate import with_changes
from crescendo.model.errors import ConfigError, CrescendoError, LostError, PeerError
from crescendo.model.experiment import Experiment
from crescendo.model.experiment_file import recorded_experiment
from crescendo.model.experiment_inputs import check_inputs, input_files, with_inputs_at
from crescendo.model.pacer import Pacer
from crescendo.model.peer_statistics import PeerStatistics
from crescendo.model.protocols import protocol_of
from crescendo.model.url_files import check_given, files_of_addresses, url_with_given_files, with_address_files_at
from crescendo.model.workload import Group, Settle
from crescendo.record.inputs import write_given
from crescendo.record.schema import EVENTS, HELD_BEFORE, SPANS, STRAYS
from crescendo.record.writer import Recorder

READY_TIMEOUT_S = 10.0
_SUBSCRIBE_RETRIES = 4
_SUBSCRIBE_AGAIN_S = 0.1
_BY_HAND_NOTICE_NS = 100_000_000
_MIN_NOTICE_NS = 20_000_000  # of a change of rate: what is sent in the next round is decided already


class Worker(PeerLoop):
    """A sender or receiver process. Also the `Control` of its engine."""

    def __init__(
        self,
        peer: Peer,
        role: str,
        data: Path,
        inputs: Mapping[str, Path],
        jms_command: Callable[[], Sequence[str]] | None = None,
    ) -> None:
        """`inputs` are files that the experiment may name, and where they are.

        `jms_command` finds the command that starts a JVM with the JMS clients, for groups that use them.
        """
        tune_for_latency()
        super().__init__(peer, data)
        self._role = role
        self._held_before = 0  # destinations that held messages before the run
        self._inputs = inputs
        self._experiment: Experiment | None = None
        self._t0_ns: int | None = None
        self._rate_changes: tuple[tuple[int, float], ...] = ()
        self._drain: Drain | None = None
        self._exceeded: str | None = None  # the limit of a test by hand, in words
        self._jms_command = jms_command
        self._recorder: Recorder | None = None
        self._engine: SenderEngine | ReceiverEngine | JmsSenderEngine | JmsReceiverEngine | None = None
        self._span_sources: list[SpanSource] = []
        # Opened before any connection: the sender engine waits for it with select, which takes no fd above 1,023.
        self._epoll = select.epoll() if role == "sender" else None

    # -- callbacks of the engine ---------------------------------------------------------------------------------

    def report(self, statistics: Statistics) -> None:
        self._record_spans()
        self._peer.report(statistics)
        if self._drain is not None and self._drain.is_quiet(statistics):
            self._announce_drained(statistics)
        if self._alone and self._role == "receiver":
            self._exceeded = self._exceeded or exceeded_limit(self._experiment, statistics)

    def should_stop(self) -> bool:
        ended = self._exceeded is not None or (self._alone and self._drain is not None and self._drain.announced)
        return ended or super().should_stop()

    def event(self, kind: str, detail: dict[str, object]) -> None:
        if kind == STALL:
            detail = {"peer": self._peer.identity.id, "role": self._role, **detail}
        elif kind == STRAYS and isinstance(tags := detail["tags"], Counter):
            detail = describe(str(detail["address"]), tags, self._data)
        if self._recorder is not None:
            self._recorder.append(EVENTS, 1, time.monotonic_ns(), self._peer.identity.id, kind, json.dumps(detail))

    # -- preparing -----------------------------------------------------------------------------------------------

    def _prepare(self, assignment: dict[str, Any]) -> None:
        given = LoadAssignment.from_payload(assignment)
        places = self._places(given.inputs)
        experiment = self._with_inputs(recorded_experiment(given.experiment, "assignment"), places)
        urls = {protocol: url_with_given_files(url, places) for protocol, url in given.urls.items()}
        given = msgspec.structs.replace(given, urls=urls)
        self._experiment = experiment
        groups = {group.name: group for group in experiment.workload}
        if any(groups[slot.group].client for slot in given.places):
            self._prepare_jms(given, experiment, groups)
            return
        held = self._look(given, groups) if self._role == "receiver" else []
        channels = self._connect(given, groups)
        self._recorder = Recorder(self._data, self._peer.identity.id, durable=given.durable)
        for detail in held:
            self.event(HELD_BEFORE, detail)
        self._engine = self._make_engine(given, experiment, groups, channels)

    def _places(self, contents: Mapping[str, bytes]) -> dict[str, str]:
        """Name in the assignment -> file, for what it was given when it was started, and for what came in the note."""
        places = {name: str(path) for name, path in self._inputs.items()}
        return places | write_given(self._data, self._peer.identity.id, contents)

    def _with_inputs(self, experiment: Experiment, places: Mapping[str, str]) -> Experiment:
        """The experiment, which reads only files that this peer was given. Receivers read no payloads."""
        check_given(files_of_addresses(experiment), places)
        experiment = with_address_files_at(experiment, places)
        if self._role != "sender":
            return experiment
        check_given(input_files(experiment), places)
        experiment = with_inputs_at(experiment, places)
        check_inputs(experiment, "assignment")
        return experiment

    def _prepare_jms(self, assignment: LoadAssignment, experiment: Experiment, groups: dict[str, Group]) -> None:
        from crescendo.load.jms.jms_engines import jms_engine

        if self._jms_command is None:
            raise LostError("this peer was started without JMS clients")
        self._recorder = Recorder(self._data, self._peer.identity.id, durable=assignment.durable)
        try:
            self._engine = jms_engine(
                self._jms_command(),
                self._role,
                self._data / f"jvm-{self._peer.identity.id}",
                assignment,
                experiment,
                groups,
                self._recorder,
                self,
                self._keep_lease,
            )
        except CrescendoError:
            self._recorder.close()
            self._recorder = None
            raise

    def _keep_lease(self) -> None:
        self._stop_request = self._stop_request or self._peer.next_request(0.0)

    def _connect(self, assignment: LoadAssignment, groups: dict[str, Group]) -> list[Any]:
        """Connect every slot.

        Of the receivers that share a subscription, the first creates it alone: Artemis refuses the others meanwhile.
        Processes cannot take turns, so a receiver that is refused in another process tries again.
        """
        sharing = _sharing_slots(assignment.places, groups) if self._role == "receiver" else {}
        first = [slots[0] for slots in sharing.values()]
        rest = [slot for slot in assignment.places if slot not in first]
        patient = frozenset(slot.id for slots in sharing.values() for slot in slots)
        channels: dict[int, Any] = {}
        try:
            for some in (first, rest):
                self._connect_some(assignment, groups, some, channels, patient)
        except CrescendoError:
            for channel in channels.values():
                channel.close()
            raise
        return [channels[slot.id] for slot in assignment.places]

    def _connect_some(
        self,
        assignment: LoadAssignment,
        groups: dict[str, Group],
        slots: list[ConnectionSlot],
        channels: dict[int, Any],
        patient: frozenset[int],
    ) -> None:
        """Connect these slots; those in `patient` try again when they are refused."""
        for attempt in range(1 + _SUBSCRIBE_RETRIES):
            for slot in slots:
                if slot.id not in channels:
                    channels[slot.id] = self._dialler(assignment, groups, slot)(0)
            try:
                self._await_ready([channels[slot.id] for slot in slots])
            except PeerError:
                refused = {slot.id for slot in slots if channels[slot.id].closed is not None}
                if attempt == _SUBSCRIBE_RETRIES or not refused or not refused <= patient:
                    raise
                for number in refused:
                    channels.pop(number).close()
                time.sleep(_SUBSCRIBE_AGAIN_S * (attempt + 1))
            else:
                return

    def _look(self, assignment: LoadAssignment, groups: dict[str, Group]) -> list[dict[str, object]]:
        """What the destinations hold already; the first receiver of each destination looks, or purges it."""
        members = [
            groups[slot.group].member(slot.index)
            for slot in assignment.places
            if slot.group in assignment.look_at and slot.index < groups[slot.group].destinations
        ]

        def dial(group: Group) -> Any:
            original = next(member for member in members if member.shared_address == group.shared_address)
            return driver_of(group.protocol, self._role)(original.target.url or assignment.urls[group.protocol], group)

        chosen = destinations_to_look_at(members)
        held = look_at(chosen, dial, self._await_ready)
        purged = {group.shared_address for group in chosen if group.purge}
        self._held_before = len(held.keys() - purged)
        if self._held_before:  # said at once: the run has not begun yet
            measured = PeerStatistics(held_before=float(self._held_before))
            self._peer.report(Statistics(time.monotonic_ns(), values=measured))
        return [describe(address, tags, self._data, purged=address in purged) for address, tags in held.items()]

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

    def _await_ready(self, channels: Sequence[Any]) -> None:
        deadline = time.monotonic() + READY_TIMEOUT_S
        waiting = list(channels)
        while waiting:
            for channel in waiting:
                channel.flush()
                for _ in channel.pump():
                    pass  # nothing can arrive: receivers grant their first credit when the engine starts
                if channel.closed is not None:
                    raise PeerError(channel.closed)
            waiting = [channel for channel in waiting if not channel.ready]
            if time.monotonic() > deadline:
                silent = f"{len(waiting)} connection(s) and did not answer within {READY_TIMEOUT_S:g} s"
                raise PeerError(f"the system accepted {silent}; is this a port of that protocol?")
            if waiting:
                time.sleep(0.002)
                self._keep_lease()

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
        return ReceiverEngine(
            receivers,
            log,
            self,
            tag=assignment.tag,
            held_before=self._held_before,
            limited=assignment.limited,
        )

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
            raise ConfigError("it has no assignment")
        self._t0_ns = t0_ns
        self._statistics = engine.run() if isinstance(engine, JmsReceiverEngine) else engine.run(t0_ns)
        failure = engine.failure  # read before `_shut_down` closes the connections
        self._announce_drained(self._statistics)
        self._shut_down()
        if self._stop_request is not None:
            return  # the peer loop answers that request next
        failure = self._exceeded or failure
        if failure is not None:
            raise PeerError(failure)
        self._peer.finish(self._statistics)

    def _change_rate(self, rate: float, from_ns: int | None) -> None:
        engine, experiment = self._engine, self._experiment
        if from_ns is None and self._alone:
            from_ns = time.monotonic_ns() + _BY_HAND_NOTICE_NS
        if not isinstance(engine, SenderEngine) or experiment is None or self._t0_ns is None or from_ns is None:
            raise ConfigError("only a running sender can change its rate, from an agreed instant on")
        if any(not group.rate for group in experiment.workload):
            raise ConfigError("it sends as fast as the system accepts, so there is no rate to change")
        if from_ns - time.monotonic_ns() < _MIN_NOTICE_NS:
            raise PeerError("the change of rate arrived too late")
        offset_ns = from_ns - self._t0_ns
        if offset_ns < max((offset for offset, _ in self._rate_changes), default=0):
            raise PeerError("a change of rate takes effect after the start, and after the change before it")
        self._rate_changes = (*self._rate_changes, (offset_ns, rate))

        def changed(sender: Sender) -> tuple[Pacer, int]:
            base = experiment.pacer_of(sender.group, sender.number)
            pacer = with_changes(base, sender.group.rate, self._rate_changes)
            return pacer, quota_of(pacer, experiment.phases).total

        engine.change_pacers(changed)
        self.event("rate changed", {"rate": rate, "from_ns": from_ns})

    def _begin_drain(self) -> None:
        if isinstance(self._engine, ReceiverEngine | JmsReceiverEngine):
            self._engine.draining = True
            self._drain = self._drain or Drain()
        elif self._alone:
            raise ConfigError("only a receiver that is running can drain")

    def _announce_drained(self, statistics: Statistics) -> None:
        """Once: when nothing arrives any more, or when it is stopped before that."""
        if self._drain is not None and not self._drain.announced:
            self._drain.announced = True
            self._peer.drained(statistics)

    def _flush(self) -> None:
        if self._recorder is not None:
            self._recorder.flush()

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


def _sharing_slots(slots: Sequence[ConnectionSlot], groups: dict[str, Group]) -> dict[str, list[ConnectionSlot]]:
    """Shared address -> the receivers that share one subscription to it."""
    sharing: dict[str, list[ConnectionSlot]] = {}
    for slot in slots:
        group = groups[slot.group].member(slot.index)
        if protocol_of(group.protocol).shares_subscriptions and not group.is_topic:
            sharing.setdefault(group.shared_address, []).append(slot)
    return sharing
