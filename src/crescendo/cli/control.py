"""The verb `control`: who takes part in a lab, and requests by hand."""

import time
from typing import Annotated, Any

import msgspec
import typer

from crescendo.cli.options import ControlFile, TokenFile
from crescendo.model.errors import ConfigError, PeerError
from crescendo.model.suggestions import listing

ACTIONS = (
    "watch", "peers", "ping", "get", "stats", "log", "flush", "set", "start", "drain", "stop", "halt", "source",
    "command",
)  # fmt: skip


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
    from crescendo.cli.control_view import print_answer, print_processes, watch_lab
    from crescendo.cli.secret_options import read_token, secret_url
    from crescendo.run.lab_client import LabClient
    from crescendo.run.lab_requests import AGENT_ACTIONS, ask_agents, ask_by_hand, set_request, start_by_hand
    from crescendo.run.lab_view import LabView

    if action not in ACTIONS:
        raise ConfigError(f"no action is called {action!r}; {listing(action, ACTIONS)}")
    given = secret_url("--control", None if url == "-" else url, control_file)
    lab = read_token(token_file)
    if given is None or lab is None:
        raise ConfigError("give the URL of the control broker, and the token of the lab with --token-file FILE")
    targets = [text for text in arguments or () if "=" not in text]
    settings = [text for text in arguments or () if "=" in text]
    setting = set_request(_options(settings)) if action == "set" else None
    if settings and action not in {"set", "start", *AGENT_ACTIONS}:
        raise ConfigError(f"{action} takes no settings; {settings[0]!r} has no effect")
    with LabClient(given, lab, f"control-{time.time_ns() & 0xFFFFFF:06x}", listen=True) as client:
        view = LabView(client)
        view.discover()
        if action == "watch" and not as_json:
            return watch_lab(view)
        if action in {"watch", "peers"} or (action == "ping" and not targets):
            print_processes(view, as_json)
            return 0
        processes = view.find_all(targets or ["conductor"], standing_first=action not in AGENT_ACTIONS)
        options = _options(settings) if settings else {}
        if action in AGENT_ACTIONS:
            answers = ask_agents(client, view, action, processes, options)
        elif action == "start":
            answers = start_by_hand(client, view, processes, options)
        else:
            answers = ask_by_hand(client, action, processes, setting)
        failed = False
        try:
            for answer in answers:
                print_answer(answer, as_json)
                failed = failed or answer.failed
        except PeerError as err:  # it was refused, with a reason that says what to do
            raise ConfigError(str(err)) from err
    return 1 if failed else 0


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
