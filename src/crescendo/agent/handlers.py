"""Which handlers run now, and what has become of those that ran?

Starts a handler in a directory of its own with a clean environment, as many at a time as allowed, and turns what their
guardians say into reports. The caller of `poll` passes them on: this module knows neither notes nor recording.
"""

import contextlib
import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from crescendo.agent.configuration import AgentConfiguration
from crescendo.agent.handler_guardian import EVENTS_FD
from crescendo.agent.handler_process import (
    GUARDIAN_KILLED,
    HandlerBounds,
    HandlerEvent,
    HandlerFailure,
    HandlerProcess,
    HandlerResult,
    HandlerStart,
    end_now,
    end_strays,
)
from crescendo.agent.handler_source import Handler, HandlerSource
from crescendo.model.errors import ConfigError, LostError

MAX_PARAMETER_BYTES = 32 * 1024
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass
class RunningHandler:
    """One handler from its start to its end."""

    name: str  # of its own in this run: command and number
    command: str
    handler: Handler
    parameters: dict[str, Any]
    point: str
    process: HandlerProcess
    directory: Path
    on_start: Callable[[HandlerStart | HandlerFailure], None] = field(default=lambda message: None)
    is_required: bool = False  # whether its failure is that of the agent's part
    start: HandlerStart | None = None
    result: HandlerResult | HandlerFailure | None = None


@dataclass(frozen=True, eq=False)
class OwedCure:
    """What undoes a command, from its start on until it is asked for."""

    of: RunningHandler
    source: HandlerSource
    handler: Handler
    parameters: dict[str, Any]
    guardian: HandlerProcess


HandlerReport = tuple[RunningHandler, HandlerStart | HandlerEvent | HandlerResult | HandlerFailure]


class Handlers:
    """The handlers of one agent. Used from the main thread."""

    def __init__(self, configuration: AgentConfiguration, directory: Path, run: str, agent: str) -> None:
        self._configuration = configuration
        self._directory = directory
        self._run, self._agent = run, agent
        self._running: list[RunningHandler] = []
        self._owed: list[OwedCure] = []
        self.started = self.failed = 0

    @property
    def running(self) -> list[RunningHandler]:
        return list(self._running)

    def start(
        self,
        source: HandlerSource,
        handler: Handler,
        point: str,
        parameters: dict[str, Any],
        *,
        most_s: float | None = None,
        is_required: bool = False,
    ) -> RunningHandler:
        """Start one, if there is room and its file is that of the commit."""
        limits = self._configuration.limits
        if len(self._running) >= limits.handlers:
            raise ConfigError(f"{limits.handlers} handlers are already running, which is the limit of this agent")
        name, directory = f"{handler.name}-{self.started + 1}", self._directory / "work" / str(self.started + 1)
        process = self._launch(source, handler, name, directory, parameters, most_s or float("inf"))
        self.started += 1
        running = RunningHandler(
            name, handler.name, handler, parameters, point, process, directory, is_required=is_required
        )
        self._running.append(running)
        return running

    def owe(self, source: HandlerSource, handler: Handler, parameters: dict[str, Any], of: RunningHandler) -> OwedCure:
        """From now on this handler runs if this process is killed: a guardian waits for that, until `settle`."""
        name, directory = f"{handler.name}-after-{of.name}", self._directory / "work" / f"after-{of.name}"
        after = of.process.guardian_pid
        guardian = self._launch(source, handler, name, directory, parameters, float("inf"), owed_after=after)
        self._owed.append(OwedCure(of, source, handler, parameters, guardian))
        return self._owed[-1]

    def settle(self, cure: OwedCure) -> None:
        """It was carried out."""
        self._owed.remove(cure)
        cure.guardian.settle()

    @property
    def owed(self) -> list[OwedCure]:
        return list(self._owed)

    def _launch(
        self,
        source: HandlerSource,
        handler: Handler,
        name: str,
        directory: Path,
        parameters: dict[str, Any],
        most_s: float,
        owed_after: int | None = None,
    ) -> HandlerProcess:
        given = json.dumps(parameters)
        if len(given.encode()) > MAX_PARAMETER_BYTES:
            raise ConfigError(f"the parameters of a command have at most {MAX_PARAMETER_BYTES} bytes")
        source.check(handler)
        limits = self._configuration.limits
        try:
            directory.mkdir(parents=True, mode=0o700)
            return HandlerProcess(
                [str(handler.path)],
                cwd=directory,
                env=self._environment(directory, name),
                parameters=given,
                bounds=HandlerBounds(
                    min(limits.time / 1e9, most_s),
                    int(limits.output),
                    int(limits.memory),
                    int(limits.files),
                    limits.processes,
                    limits.events,
                ),
                owed_after=owed_after,
            )
        except OSError as err:
            raise LostError(f"{handler.name} cannot be started: {err.strerror}") from err

    def poll(self) -> list[HandlerReport]:
        """What happened since the last call."""
        reports: list[HandlerReport] = []
        for running in self.running:
            for message in running.process.messages():
                self._note(running, message)
                reports.append((running, message))
        return reports

    def end_all(self) -> list[HandlerReport]:
        """End every handler with everything that it started, and wait until nothing is left."""
        running = self.running
        for one in running:
            one.process.stop()
        reports = self.poll()
        for one in running:
            for result in end_now([one.process]):
                self._note(one, result)
                reports.append((one, result))
        return reports

    def _note(
        self, running: RunningHandler, message: HandlerStart | HandlerEvent | HandlerResult | HandlerFailure
    ) -> None:
        match message:
            case HandlerStart():
                running.start = message
                running.on_start(message)
            case HandlerResult() | HandlerFailure():
                running.result = message
                self._running.remove(running)
                with contextlib.suppress(OSError):
                    shutil.rmtree(running.directory)
                self.failed += isinstance(message, HandlerFailure) or not message.is_good
                if running.start is None:
                    reason = message.reason or "it did not start"
                    running.on_start(HandlerFailure(reason))
                if isinstance(message, HandlerResult) and message.reason == GUARDIAN_KILLED:
                    guardians = [other.process for other in self._running] + [cure.guardian for cure in self._owed]
                    end_strays([guardian.guardian_pid for guardian in guardians])

    def _environment(self, directory: Path, name: str) -> dict[str, str]:
        """Nothing of ours: a handler sees a path, its own directory, and who started it."""
        return {
            "PATH": _PATH,
            "LANG": "C.UTF-8",
            **self._configuration.environment,
            "HOME": str(directory),
            "TMPDIR": str(directory),
            "CRESCENDO_EVENTS_FD": str(EVENTS_FD),
            "CRESCENDO_HANDLER": name,
            "CRESCENDO_AGENT": self._agent,
            "CRESCENDO_RUN": self._run,
        }
