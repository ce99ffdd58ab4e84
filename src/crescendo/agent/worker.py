"""How does an agent process run, from its first note to its last?

It fetches the source of its handlers, runs those of `start_agent` at the start, any of `user_command` on request, and
those of `stop_agent` at the end. A request is answered when its handler has started, and a notification says how that
ended. All of it becomes events of the recording. A handler that the run needs and that fails makes the agent's part
fail; one that somebody asked for by hand does not.
"""

import ctypes
import json
import shutil
import time
from pathlib import Path
from typing import Any

from crescendo.agent.assignment import AgentAssignment
from crescendo.agent.configuration import AgentConfiguration
from crescendo.agent.fetch_source import fetch_source
from crescendo.agent.handler_process import HandlerEvent, HandlerFailure, HandlerResult, HandlerStart
from crescendo.agent.handler_source import START_AGENT, STOP_AGENT, USER_COMMAND, Handler, HandlerSource
from crescendo.agent.handlers import HandlerReport, Handlers, RunningHandler
from crescendo.control.agent_payloads import (
    AgentSource,
    EndedHandler,
    FetchedSource,
    HandlerNote,
    StartedHandler,
    UserCommand,
)
from crescendo.control.notes import Command, Failure, Note, Statistics
from crescendo.control.peer import CONDUCTOR, Peer
from crescendo.control.peer_loop import PeerLoop
from crescendo.model.errors import ConfigError, LostError, PeerError
from crescendo.model.peer_statistics import agent_statistics
from crescendo.model.redaction import redact_value
from crescendo.model.urls import redact_url_text
from crescendo.record.schema import AGENT_SOURCE, EVENTS, HANDLER_ENDED, HANDLER_EVENT, HANDLER_STARTED
from crescendo.record.writer import Recorder

AGENTS = "agents"
"""The directory below that of the run in which agents keep sources and the work of their handlers while they run."""

STOP_S = 10.0
"""How long cures that are still owed and the handlers of `stop_agent` may take together."""

SOURCE, STARTED, ENDED, EVENT = AGENT_SOURCE, HANDLER_STARTED, HANDLER_ENDED, HANDLER_EVENT
"""Events of an agent in the recording."""

_PR_SET_CHILD_SUBREAPER = 36
_REPORT_NS = 10**9
_POLL_S = 0.02
_EVENT_OUTPUT_CHARS = 2000
_LIMITS = {
    "time": "it ran longer than it may",
    "output": "it printed more than it may",
    "processes": "it had more processes than it may",
    "guardian": "its guardian was killed",
    "stopped": "it was stopped",
}


class AgentWorker(PeerLoop):
    """One agent process."""

    request_timeout_s = _POLL_S

    def __init__(self, peer: Peer, data: Path, configuration: AgentConfiguration) -> None:
        super().__init__(peer, data)
        # What a killed guardian leaves becomes ours, and is ended.
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        self._configuration = configuration
        self._directory = data / AGENTS / peer.identity.id
        self._handlers = Handlers(configuration, self._directory, peer.scope.name, peer.identity.id)
        self._source: HandlerSource | None = None
        self._sources = 0
        self._fetching = False
        self._recorder: Recorder | None = None
        self._t0_ns: int | None = None
        self._reported_ns = 0
        self._failed = ""

    # -- the part of a peer ---------------------------------------------------------------------------------------

    def _prepare(self, assignment: dict[str, Any]) -> None:
        given = AgentAssignment.from_payload(assignment)
        self._recorder = Recorder(self._data, self._peer.identity.id, durable=given.durable)
        self._make_directory()
        if given.source:
            self._fetch(AgentSource(given.source, given.branch))

    def _start(self, t0_ns: int) -> None:
        self._t0_ns = t0_ns

    def _idle(self) -> None:
        self._report(self._handlers.poll())
        now_ns = time.monotonic_ns()
        if self._t0_ns is not None and now_ns >= self._t0_ns:
            self._t0_ns = None
            self._run_all(START_AGENT, self._configuration.limits.time / 1e9)
        if self._recorder is not None and now_ns - self._reported_ns >= _REPORT_NS:
            self._reported_ns = now_ns
            self._recorder.tick(now_ns)
            self._count()
            self._peer.report(self._statistics)

    def _carry_out(self, note: Note) -> None:
        if note.command is Command.AGENT_SOURCE:
            fetched = self._fetch(AgentSource.from_payload(note.payload))
            self._peer.reply(note, Command.OK, fetched)
        elif note.command is Command.USER_COMMAND_1:
            self._begin_command(note, UserCommand.from_payload(note.payload))
        else:
            super()._carry_out(note)

    def _flush(self) -> None:
        if self._recorder is not None:
            self._recorder.flush()

    def _shut_down(self) -> None:
        if self._recorder is None:
            return
        if self._peer.state == "running":
            deadline_s = time.monotonic() + STOP_S
            self._run_owed(deadline_s)
            self._await(self._run_all(STOP_AGENT, STOP_S), deadline_s)
        self._report(self._handlers.end_all())
        self._count()
        recorder, self._recorder = self._recorder, None
        recorder.close()
        shutil.rmtree(self._directory, ignore_errors=True)

    def _failure(self) -> Failure | None:
        return Failure(self._failed, "peer") if self._failed and not self._alone else None

    # -- source and handlers --------------------------------------------------------------------------------------

    def _fetch(self, wanted: AgentSource) -> FetchedSource:
        if self._fetching:
            raise ConfigError("it is fetching a source; ask again when that is done")
        if self._recorder is None:
            raise ConfigError("AGENT_SOURCE: SET comes first")
        self._fetching = True
        self._sources += 1
        directory = self._directory / f"source-{self._sources}"
        try:
            source = fetch_source(self._configuration, wanted.source, wanted.branch, directory, self._while_fetching)
        except OSError as err:
            raise LostError(f"the source cannot be fetched: {err.strerror or err}") from err
        finally:
            self._fetching = False
        self._source = source
        self._record(
            SOURCE,
            {"source": redact_url_text(wanted.source), "branch": wanted.branch, "commit": source.commit},
        )
        self._peer.log(f"source {redact_url_text(wanted.source)} at {source.commit}")
        return FetchedSource(source.commit, [handler.name for handler in source.handlers(USER_COMMAND)])

    def _while_fetching(self) -> None:
        """Stay alive for the conductor; a request to stop ends the fetch."""
        if self._peer.state == "running":
            self._idle()
            if self.should_stop():
                raise PeerError("it was stopped while it fetched a source")

    def _begin_command(self, note: Note, wanted: UserCommand) -> None:
        if self._peer.state != "running":
            raise ConfigError(f"START_AGENT comes first; this agent is {self._peer.state}")
        if self._source is None:
            raise ConfigError("it has no source; AGENT_SOURCE names one")
        handler = self._source.command(wanted.command)
        cure = self._source.command(wanted.cure) if wanted.cure else None
        if cure is not None:
            self._source.check(cure)
        running = self._handlers.start(
            self._source,
            handler,
            USER_COMMAND,
            wanted.parameters,
            is_required=note.sender.role == CONDUCTOR,
        )

        def answer(message: HandlerStart | HandlerFailure) -> None:
            if isinstance(message, HandlerStart):
                self._peer.reply(note, Command.OK, StartedHandler(running.name, message.pid, message.t_ns))
            else:
                self._peer.refuse(note, Failure(f"{running.command}: {message.reason}", "peer"))

        running.on_start = answer
        undone = [one for one in self._handlers.owed if (one.handler, one.parameters) == (handler, wanted.parameters)]
        for one in undone[:1]:
            self._handlers.settle(one)
        if cure is not None:
            self._handlers.owe(self._source, cure, wanted.parameters, running)

    def _run_all(self, point: str, most_s: float) -> list[RunningHandler]:
        """Start every handler of an extension point; the run needs them."""
        if self._source is None:
            return []
        started = []
        for handler in self._source.handlers(point):
            started += self._run_required(self._source, handler, point, {}, most_s)
        return started

    def _run_owed(self, deadline_s: float) -> None:
        """Run the cures that nobody has asked for, the latest first, after the commands that they undo have ended."""
        for cure in reversed(self._handlers.owed):
            if cure.of.result is None:
                cure.of.process.stop()
                self._await([cure.of], deadline_s)
            most_s = max(deadline_s - time.monotonic(), _POLL_S)
            self._await(
                self._run_required(cure.source, cure.handler, USER_COMMAND, cure.parameters, most_s), deadline_s
            )
            self._handlers.settle(cure)

    def _run_required(
        self, source: HandlerSource, handler: Handler, point: str, parameters: dict[str, Any], most_s: float
    ) -> list[RunningHandler]:
        try:
            return [self._handlers.start(source, handler, point, parameters, most_s=most_s, is_required=True)]
        except (ConfigError, PeerError, LostError) as err:
            self._fail(f"{point}/{handler.name}: {err}")
            return []

    def _await(self, handlers: list[RunningHandler], deadline_s: float) -> None:
        while any(running.result is None for running in handlers) and time.monotonic() < deadline_s:
            self._report(self._handlers.poll())
            time.sleep(_POLL_S)

    def _report(self, reports: list[HandlerReport]) -> None:
        for running, message in reports:
            match message:
                case HandlerStart():
                    self._record(
                        STARTED,
                        {
                            "handler": running.name,
                            "point": running.point,
                            "command": running.command,
                            "parameters": redact_value(running.parameters),
                            "blob": running.handler.blob,
                            "pid": message.pid,
                        },
                        message.t_ns,
                    )
                case HandlerEvent():
                    self._take_event(running, message)
                case HandlerFailure():
                    self._end(running, HandlerResult(127, time.monotonic_ns()), message.reason)
                case HandlerResult():
                    self._end(running, message, _LIMITS.get(message.reason, ""))

    def _take_event(self, running: RunningHandler, event: HandlerEvent) -> None:
        """An event goes to the recording, with its own time if that is plausible; a note goes to all listeners."""
        content = dict(event.content)
        reported_ns = content.pop("t_ns", None)
        begun_ns = 0 if running.start is None else running.start.t_ns
        is_possible = isinstance(reported_ns, int) and begun_ns <= reported_ns <= event.t_ns
        if (text := content.pop("note", None)) is not None:
            self._peer.log(f"{running.name}: {text}")
            self._peer.tell(HandlerNote(running.name, [str(text)[:500]]))
        if content:
            self._record(EVENT, {**content, "handler": running.name}, reported_ns if is_possible else event.t_ns)

    def _end(self, running: RunningHandler, result: HandlerResult, why: str) -> None:
        detail = {
            "handler": running.name,
            "point": running.point,
            "command": running.command,
            "code": result.code,
            "reason": why,
            "output": result.output[:_EVENT_OUTPUT_CHARS],
            "left": result.left,
            "events_dropped": result.dropped,
        }
        self._record(ENDED, detail, result.t_ns)
        is_good = result.is_good and not why
        how = why or f"exited with code {result.code}"
        self._peer.log(f"{running.name}: {how}", "info" if is_good else "error")
        self._peer.ended_handler(
            EndedHandler(running.name, running.command, result.code, why, result.output, result.t_ns, result.left),
            is_good=is_good,
        )
        if running.is_required and not is_good:
            self._fail(f"{running.point}/{running.command}: {how}")

    def _fail(self, reason: str) -> None:
        """Its part has failed; it goes on, because later handlers may undo what was done, and says so at its end."""
        self._failed = self._failed or reason
        self._peer.log(reason, "error")

    def _record(self, kind: str, detail: dict[str, Any], t_ns: int | None = None) -> None:
        if self._recorder is not None:
            now_ns = time.monotonic_ns() if t_ns is None else t_ns
            self._recorder.append(EVENTS, 1, now_ns, self._peer.identity.id, kind, json.dumps(detail))

    def _count(self) -> None:
        measured = agent_statistics(
            handlers=self._handlers.started, failed_handlers=self._handlers.failed, cpu_seconds=time.process_time()
        )
        self._statistics = Statistics(time.monotonic_ns(), values=measured)

    def _make_directory(self) -> None:
        try:
            self._directory.mkdir(parents=True, mode=0o700)
        except OSError as err:
            raise LostError(f"{self._directory} cannot be created: {err.strerror}") from err
