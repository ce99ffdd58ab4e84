"""Which requests carry out a test by hand, and what do the processes of a lab answer?

What `crescendo control` asks standing peers, conductors and agents. Answers come one by one, as soon as each is there.
Prints nothing, and finds no processes: `lab_view` does.
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from crescendo.control.agent_payloads import AgentSource, StartedHandler, UserCommand
from crescendo.control.notes import Command, NotePayload
from crescendo.control.request_payloads import OPTION_NUMBERS, Ping, SetRequest, StartByHand, options_from
from crescendo.control.trust import new_run_name
from crescendo.model.errors import ConfigError, PeerError
from crescendo.model.url_files import files_of_url, with_files_at
from crescendo.run.lab_client import LabClient
from crescendo.run.lab_view import LabProcess, LabView

AGENT_ACTIONS = SOURCE, COMMAND = "source", "command"
_STARTED_S = 60.0
_ANSWER_S = 30.0  # a peer that stops closes its connections and its recording first
_SOURCE_S = 90.0  # an agent fetches from a network
_START_ORDER = ("inspector", "agent", "receiver", "sender")  # nothing is sent before somebody receives

Options = dict[str | int, Any]


@dataclass(frozen=True)
class ProcessAnswer:
    """What one process answered, and after how long."""

    process: LabProcess
    command: Command
    payload: dict[str, Any]
    took_ns: int
    failed: bool = False  # a command that an agent carried out


def ask_by_hand(
    client: LabClient, action: str, processes: Sequence[LabProcess], setting: SetRequest | None
) -> Iterator[ProcessAnswer]:
    """Ask one after another. Raises PeerError if one refuses."""
    for process in processes:
        command, payload = _request(action, process, setting)
        begun_ns = time.monotonic_ns()
        answer = client.ask(client.lab.scope_of(process.scope), process.identity, command, payload, _ANSWER_S)
        yield ProcessAnswer(process, answer.command, answer.payload, time.monotonic_ns() - begun_ns)


def ask_agents(
    client: LabClient, view: LabView, action: str, processes: Sequence[LabProcess], given: Options
) -> Iterator[ProcessAnswer]:
    """Ask agents for a source or a command. A command has two answers: that it began, and how it ended."""
    payload = _agent_request(action, {str(name): value for name, value in given.items()})
    wanted = Command.AGENT_SOURCE if action == SOURCE else Command.USER_COMMAND_1
    for process in processes:
        begun_ns = time.monotonic_ns()
        answer = client.ask(client.lab.scope_of(process.scope), process.identity, wanted, payload, _SOURCE_S)
        yield ProcessAnswer(process, answer.command, answer.payload, time.monotonic_ns() - begun_ns)
        if action == COMMAND:
            handler = StartedHandler.from_payload(answer.payload).handler
            ended = view.await_handler(process.identity, handler)
            took_ns = time.monotonic_ns() - begun_ns
            failed = ended.command is not Command.NOTIFY_SUCCESS
            yield ProcessAnswer(process, ended.command, ended.payload, took_ns, failed)


def start_by_hand(
    client: LabClient, view: LabView, processes: Sequence[LabProcess], options: Options
) -> Iterator[ProcessAnswer]:
    """Begin one test on standing peers, receivers first, each when the one before has started."""
    unknown = [name for name in options if name not in {"run", "kind"}]
    if unknown:
        raise ConfigError(f"start takes run=RUN and kind=KIND; {unknown[0]!r} has no effect: set it before")
    for process in processes:
        if not process.is_standing or process.identity.role not in _START_ORDER:
            raise ConfigError(f"{process.identity.id} is not a standing peer; a run starts its own peers")
    payload = StartByHand.from_payload(
        {"run": new_run_name(), **{str(name): str(value) for name, value in options.items()}}
    )
    for process in sorted(processes, key=lambda one: _START_ORDER.index(one.identity.role)):
        begun_ns = time.monotonic_ns()
        client.ask(client.lab.scope, process.identity, Command[f"START_{process.identity.role.upper()}"], payload)
        started = view.await_started(payload.run, process.identity.id, _STARTED_S)
        answer = {"run": payload.run, **started.payload}
        yield ProcessAnswer(process, started.command, answer, time.monotonic_ns() - begun_ns)


def set_request(options: Options) -> SetRequest:
    """The options, with the contents of the files that a URL names."""
    options = dict(options)
    try:
        options_from(options)  # rejects mistakes here, with their names
    except PeerError as err:
        raise ConfigError(f"set: {err}; known: {', '.join(OPTION_NUMBERS)}") from err
    contents: dict[str, bytes] = {}
    for name in ("broker", "management_interface"):
        names = {file: f"{name}-{number}" for number, file in enumerate(files_of_url(str(options.get(name, ""))))}
        for file, key in names.items():
            contents[key] = _read(file)
        if names:
            options[name] = with_files_at(str(options[name]), names)
    return SetRequest(options=options, files=contents)


def _read(file: str) -> bytes:
    try:
        return Path(file).read_bytes()
    except OSError as err:
        raise ConfigError(f"{file}: cannot be read: {err.strerror}") from err


def _agent_request(action: str, given: dict[str, Any]) -> NotePayload:
    if action == SOURCE:
        unknown = [name for name in given if name not in {"source", "branch"}]
        if unknown or "source" not in given:
            raise ConfigError("source: give source=URL-OR-PATH, and branch=NAME if the agent allows several commits")
        return AgentSource.from_payload({name: str(value) for name, value in given.items()})
    if "command" not in given:
        raise ConfigError("command: give command=NAME; every other NAME=VALUE is a parameter of it")
    return UserCommand(str(given.pop("command")), given)


def _request(action: str, process: LabProcess, setting: SetRequest | None) -> tuple[Command, NotePayload | None]:
    match action:
        case "ping":
            seconds, micros = divmod(time.time_ns() // 1000, 1_000_000)
            return Command.PING, Ping(seconds, micros)
        case "set":
            return Command.SET, setting
        case "stop":
            name = f"STOP_{process.identity.role.upper()}"
            if name not in Command.__members__:
                raise ConfigError(
                    f"{process.identity.id} is a {process.identity.role}, which cannot be stopped; halt it"
                )
            return Command[name], None
        case _:
            return Command[action.upper()], None
