"""The verb `control`: who takes part in a lab, and requests by hand."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from crescendo.cli.options import ControlFile, TokenFile
from crescendo.model.errors import ConfigError, PeerError
from crescendo.model.suggestions import listing

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.table import Table

    from crescendo.control.notes import Command, NotePayload, Statistics
    from crescendo.control.request_payloads import SetRequest
    from crescendo.run.lab_client import LabClient
    from crescendo.run.lab_view import LabProcess, LabView

ACTIONS = (
    "watch", "peers", "ping", "get", "stats", "log", "flush", "set", "start", "drain", "stop", "halt", "source",
    "command",
)  # fmt: skip
_HALF_SECOND_S = 0.5
_STARTED_S = 60.0
_ANSWER_S = 30.0  # a peer that stops closes its connections and its recording first
_SOURCE_S = 90.0  # an agent fetches from a network
_AGENT_ACTIONS = ("source", "command")
_START_ORDER = ("inspector", "agent", "receiver", "sender")  # nothing is sent before somebody receives


def control(
    url: Annotated[str, typer.Argument(metavar="URL", help="The control broker; - takes it from --control-file.")],
    action: Annotated[str, typer.Argument(help=f"One of {', '.join(ACTIONS)}.")] = "watch",
    arguments: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[TARGET]... [NAME=VALUE]...",
            help="Processes by their ids, or RUN/ID; then what to set, such as rate=500. Default: the only conductor.",
        ),
    ] = None,
    token_file: TokenFile = None,
    control_file: ControlFile = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print each answer as one line of JSON.")] = False,
) -> int:
    """Watch the peers of a lab and its runs: roles, leases, clocks, statistics. Or ask some of them by hand.

    `set RUN/conductor rate=500` changes the rate of a running test; `halt` ends a standing peer, or a run if the target
    is its conductor. `set`, `start`, `drain` and `stop` on standing peers carry out a test by hand. `source AGENT
    source=URL branch=NAME` and `command AGENT command=NAME …` are for agents that take part in one. Only the holder of
    the lab's token is listened to.
    """
    from crescendo.cli.secret_options import read_token, secret_url
    from crescendo.run.lab_client import LabClient
    from crescendo.run.lab_view import LabView

    if action not in ACTIONS:
        raise ConfigError(f"no action is called {action!r}; {listing(action, ACTIONS)}")
    given = secret_url("--control", None if url == "-" else url, control_file)
    lab = read_token(token_file)
    if given is None or lab is None:
        raise ConfigError("give the URL of the control broker, and the token of the lab with --token-file FILE")
    targets = [text for text in arguments or () if "=" not in text]
    settings = [text for text in arguments or () if "=" in text]
    setting = _set_request(settings) if action == "set" else None
    if settings and action not in {"set", "start", *_AGENT_ACTIONS}:
        raise ConfigError(f"{action} takes no settings; {settings[0]!r} has no effect")
    with LabClient(given, lab, f"control-{time.time_ns() & 0xFFFFFF:06x}", listen=True) as client:
        view = LabView(client)
        view.discover()
        if action == "watch" and not as_json:
            return _watch(view)
        if action in {"watch", "peers"} or (action == "ping" and not targets):
            _print_peers(view, as_json)
            return 0
        processes = view.find_all(targets or ["conductor"], standing_first=action not in _AGENT_ACTIONS)
        try:
            if action in _AGENT_ACTIONS:
                return _ask_agents(client, view, action, processes, settings, as_json)
            if action == "start":
                _start(client, view, processes, settings, as_json)
            else:
                _ask(client, action, processes, setting, as_json)
        except PeerError as err:  # it was refused, with a reason that says what to do
            raise ConfigError(str(err)) from err
    return 0


def _ask(
    client: "LabClient",
    action: str,
    processes: "list[LabProcess]",
    setting: "SetRequest | None",
    as_json: bool,
) -> None:
    for process in processes:
        command, payload = _request(action, process, setting)
        begun_ns = time.monotonic_ns()
        answer = client.ask(client.lab.scope_of(process.scope), process.identity, command, payload, _ANSWER_S)
        _print_answer(process, answer.command.name, answer.payload, time.monotonic_ns() - begun_ns, as_json)


def _ask_agents(
    client: "LabClient",
    view: "LabView",
    action: str,
    processes: "list[LabProcess]",
    settings: list[str],
    as_json: bool,
) -> int:
    """Ask agents for a source or a command; 1 if a command failed."""
    from crescendo.control.agent_payloads import StartedHandler
    from crescendo.control.notes import Command

    given = {str(name): value for name, value in _options(settings).items()} if settings else {}
    payload = _agent_request(action, given)
    wanted = Command.AGENT_SOURCE if action == "source" else Command.USER_COMMAND_1
    failed = 0
    for process in processes:
        scope = client.lab.scope_of(process.scope)
        begun_ns = time.monotonic_ns()
        answer = client.ask(scope, process.identity, wanted, payload, _SOURCE_S)
        _print_answer(process, answer.command.name, answer.payload, time.monotonic_ns() - begun_ns, as_json)
        if action == "command":
            handler = StartedHandler.from_payload(answer.payload).handler
            ended = view.await_handler(process.identity, handler)
            failed += ended.command is not Command.NOTIFY_SUCCESS
            _print_answer(process, ended.command.name, ended.payload, time.monotonic_ns() - begun_ns, as_json)
    return 1 if failed else 0


def _agent_request(action: str, given: dict[str, Any]) -> "NotePayload":
    from crescendo.control.agent_payloads import AgentSource, UserCommand

    if action == "source":
        unknown = [name for name in given if name not in {"source", "branch"}]
        if unknown or "source" not in given:
            raise ConfigError("source: give source=URL-OR-PATH, and branch=NAME if the agent allows several commits")
        return AgentSource.from_payload({name: str(value) for name, value in given.items()})
    if "command" not in given:
        raise ConfigError("command: give command=NAME; every other NAME=VALUE is a parameter of it")
    return UserCommand(str(given.pop("command")), given)


def _request(action: str, process: "LabProcess", setting: "SetRequest | None") -> "tuple[Command, NotePayload | None]":
    from crescendo.control.notes import Command
    from crescendo.control.request_payloads import Ping

    match action:
        case "ping":
            seconds, micros = divmod(time.time_ns() // 1000, 1_000_000)
            return Command.PING, Ping(seconds, micros)
        case "set":
            return Command.SET, setting
        case "stop":
            name = f"STOP_{process.identity.role.upper()}"
            if name not in Command.__members__:
                raise ConfigError(f"{process.identity.id} is a {process.identity.role}, which nobody can stop; halt it")
            return Command[name], None
        case _:
            return Command[action.upper()], None


def _set_request(settings: list[str]) -> "SetRequest":
    """The options, with the contents of the files that a URL names."""
    from crescendo.control.request_payloads import OPTION_NUMBERS, SetRequest, options_from
    from crescendo.model.url_files import files_of_url, with_files_at

    options = _options(settings)
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


def _start(
    client: "LabClient", view: "LabView", processes: "list[LabProcess]", settings: list[str], as_json: bool
) -> None:
    """Begin one test by hand on standing peers, receivers first, each when the one before has started."""
    from crescendo.control.notes import Command
    from crescendo.control.request_payloads import StartByHand
    from crescendo.control.trust import new_run_name

    options = _options(settings) if settings else {}
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
        _print_answer(process, started.command.name, answer, time.monotonic_ns() - begun_ns, as_json)


def _options(settings: list[str]) -> dict[str | int, Any]:
    options: dict[str | int, Any] = {}
    for setting in settings:
        name, equals, text = setting.partition("=")
        if not equals or not name:
            raise ConfigError(f"{setting!r} should read NAME=VALUE, such as rate=500")
        try:
            options[name] = msgspec.json.decode(text)
        except msgspec.DecodeError:
            options[name] = text
    if not options:
        raise ConfigError("set: give at least one NAME=VALUE, such as rate=500")
    return options


def _watch(view: "LabView") -> int:
    from rich.console import Console
    from rich.live import Live

    console = Console(highlight=False)
    try:
        if not console.is_terminal:
            while True:
                print(*(_line(one) for one in view.refresh()), sep="\n", flush=True)
                time.sleep(_HALF_SECOND_S)
        with Live(console=console, auto_refresh=False, transient=True) as live:
            while True:
                live.update(_table(view.refresh(), console.width), refresh=True)
    except KeyboardInterrupt:
        return 0


def _print_peers(view: "LabView", as_json: bool) -> None:
    processes = view.refresh()
    if as_json:
        print(msgspec.json.encode([_document(one) for one in processes]).decode(), flush=True)
        return
    from rich.console import Console

    console = Console(highlight=False)
    console.print(_table(processes, console.width))


def _print_answer(process: "LabProcess", command: str, payload: dict[str, Any], took_ns: int, as_json: bool) -> None:
    if as_json:
        answer = {"peer": process.identity.id, "run": process.scope, "answer": command, "took_ns": took_ns}
        print(msgspec.json.encode({**answer, "payload": payload}).decode(), flush=True)
        return
    if command == "LOG":
        print(*payload["lines"], sep="\n", flush=True)
        return
    said = ", ".join(f"{key} {value}" for key, value in payload.items() if value not in ({}, [], None, ""))
    print(f"{process.identity.id}: {command} after {took_ns / 1e6:.1f} ms" + (f": {said}" if said else ""), flush=True)


def _document(one: "LabProcess") -> dict[str, Any]:
    statistics = one.statistics
    return {
        "run": one.scope,
        "id": one.identity.id,
        "role": one.identity.role,
        "host": one.identity.host,
        "pid": one.identity.pid,
        "state": one.state,
        "standing": one.is_standing,
        "busy_with": one.run if one.is_standing else "",
        "round_trip_ns": one.round_trip_ns,
        "clock_offset_ns": one.clock_offset_ns,
        "lease_left_ns": one.lease_left_ns(time.monotonic_ns()),
        "statistics": None if statistics is None else msgspec.to_builtins(statistics),
    }


def _line(one: "LabProcess") -> str:
    statistics = one.statistics
    load = "" if statistics is None else f", {statistics.rate:,.0f} msg/s, {statistics.messages:,} messages"
    return f"{one.scope}/{one.identity.id} on {one.identity.host}: {one.state}{load}"


def _table(processes: "list[LabProcess]", width: int) -> "Table":
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, title=f"{len(processes)} processes", title_justify="left")
    columns = [name for name in _CELLS if width >= _WIDE or name not in _ONLY_WIDE]
    for name in columns:
        table.add_column(name, justify="left" if name in _TEXTS else "right", no_wrap=True)
    for one in processes:
        table.add_row(*(_CELLS[name](one) for name in columns))
    return table


def _state(one: "LabProcess") -> str:
    return f"{one.state} {one.run[:_RUN_CHARS]}".strip() if one.is_standing else one.state


def _reported(show: "Callable[[Statistics], str]") -> "Callable[[LabProcess], str]":
    return lambda one: "" if one.statistics is None else show(one.statistics)


def _p99(report: "Statistics") -> str:
    from crescendo.model.units import format_ns

    return "" if report.p99_ns is None else format_ns(report.p99_ns)


_RUN_CHARS = 8  # of a run's name; RUN/ID takes a beginning too
_WIDE = 110  # columns of a terminal
_TEXTS = ("run", "peer", "role", "host", "state")
_ONLY_WIDE = ("role", "host", "lease", "ping", "clock", "CPU")
_CELLS: "dict[str, Callable[[LabProcess], str]]" = {
    "run": lambda one: "standing" if one.is_standing else one.scope[:_RUN_CHARS],
    "peer": lambda one: one.identity.id,
    "role": lambda one: one.identity.role,
    "host": lambda one: one.identity.host,
    "state": _state,
    "lease": lambda one: f"{one.lease_left_ns(time.monotonic_ns()) / 1e9:.0f} s",
    "ping": lambda one: f"{one.round_trip_ns / 1e6:.1f} ms",
    "clock": lambda one: f"{one.clock_offset_ns / 1e6:+.1f} ms",
    "msg/s": _reported(lambda report: f"{report.rate:,.0f}"),
    "messages": _reported(lambda report: f"{report.messages:,}"),
    "p99": _reported(_p99),
    "CPU": _reported(lambda report: f"{report.cpu * 100:.0f} %"),
}
