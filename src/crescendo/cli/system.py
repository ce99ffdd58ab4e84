"""The verbs of `system`: systems under test that are started by hand and run until they are stopped."""

import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from crescendo.cli.options import Json, SetFile
from crescendo.cli.secret_options import read_set_file, warn_of_secrets
from crescendo.cli.terminal import Progress
from crescendo.model.errors import ConfigError
from crescendo.processes.log_tail import open_log
from crescendo.systems.base import Installation, SystemKind
from crescendo.systems.install import jms_clients, postgresql, postgresql_driver
from crescendo.systems.registry import all_kinds, system_of
from crescendo.systems.settings import protocols_of

if TYPE_CHECKING:
    from crescendo.systems.detached import DetachedSystem

SYSTEM_HELP = (
    "Start and stop real brokers and routers on this machine.\n\n"
    "A system started by [bold]up[/bold] keeps running, on free ports of the loopback interface, until "
    "[bold]down[/bold]."
)

KindName = Annotated[str, typer.Argument(metavar="KIND", help="A kind from `crescendo system list`.")]

_TEXTS = {"user", "password"}  # 007 is a password, not the number seven
_FOLLOW_POLL_S = 0.2
_CHUNK_BYTES = 2**20


def list_kinds(as_json: Json = False) -> int:
    """Show the kinds of systems, their protocols, and whether they are installed."""
    kinds = [_described(kind) for kind in all_kinds()]
    if as_json:
        _print_json(kinds)
        return 0
    for kind in kinds:
        print(
            f"{kind['kind']:14} {kind['installed'] or 'missing':8} {' '.join(kind['protocols']):24} {kind['summary']}"
        )
        if kind["missing"]:
            print(f"{'':14} {kind['missing']}")
    return 0


_BESIDE_SYSTEMS = {
    jms_clients.NAME: jms_clients.install_jms_clients,
    postgresql_driver.NAME: postgresql_driver.install_postgresql_driver,
}


def install(
    kind: KindName,
    version: Annotated[str | None, typer.Option("--version", help="A version other than the default.")] = None,
    as_json: Json = False,
) -> int:
    """Install a system: the distribution's package or a Maven artifact. Does nothing if it is already installed.

    Not systems: `jms-clients`, which `client: jms` in an experiment needs; `postgresql-driver`, for a pair of ActiveMQ
    brokers that share a database; and `postgresql`, another version of the database that MLMQ embeds.
    """
    with Progress() as progress:
        found = _install(kind, version, progress)
    if as_json:
        _print_json(
            {
                "kind": kind,
                "version": found.version,
                "home": str(found.home),
                "origin": found.origin,
                "sha256": found.sha256,
            }
        )
    else:
        print(f"{kind} {found.version} ({found.origin}) at {found.home}")
    return 0


def _install(kind: str, version: str | None, progress: Callable[[str], None]) -> Installation:
    if kind == postgresql.NAME:
        return postgresql.install_postgresql(version, progress)
    if kind not in _BESIDE_SYSTEMS:
        return system_of(kind).install(version, progress)
    if version is not None:
        raise ConfigError(f"{kind} has one version, that of this Crescendo; leave --version out")
    return _BESIDE_SYSTEMS[kind](progress)


def up(
    kind: KindName,
    name: Annotated[
        str | None, typer.Option("--name", help="The name of the system. Default: its kind and a number.")
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="A setting, e.g. --set persistence=false. Repeatable."),
    ] = None,
    ports: Annotated[
        list[str] | None,
        typer.Option("--port", metavar="NAME=NUMBER", help="A port, e.g. --port amqp=5672. Repeatable. Default: free."),
    ] = None,
    files: SetFile = None,
    home: Annotated[Path | None, typer.Option("--home", help="The directory of your own installation.")] = None,
    version: Annotated[str | None, typer.Option("--version", help="Which installed version to use.")] = None,
    as_json: Json = False,
) -> int:
    """Start a system, wait until a message has passed through it, and print its URLs."""
    from crescendo.systems import detached

    chosen = system_of(kind)
    warn_of_secrets(settings or ())
    for number in (signal.SIGTERM, signal.SIGHUP):  # these signals too must shut the system down again
        signal.signal(number, _interrupt)
    with Progress() as progress:
        progress(f"starting {kind}")
        record = detached.up(
            chosen,
            dict(_setting(text) for text in settings or ()) | dict(map(read_set_file, files or ())),
            name=name,
            home=home,
            version=version,
            ports=dict(_port(text) for text in ports or ()),
        )
    if as_json:
        _print_json(_shown(record))
        return 0
    print(f"{record.name} is up: {record.facts['kind']} {record.facts['version']}, pid {record.facts['pid']}")
    if because := record.facts.get("runs_as_root_because"):
        print(f"it runs as root, because {because}", file=sys.stderr)
    for endpoint, url in record.endpoints.items():
        print(f"  {endpoint:11} {url}")
    print(f"to stop it: crescendo system down {record.name}", file=sys.stderr)
    return 0


def down(
    names: Annotated[list[str] | None, typer.Argument(metavar="[NAME]...", help="Names as printed by `up`.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="All of them.")] = False,
) -> int:
    """Stop systems and remove their files. Stopping a system that is already down is not an error."""
    from crescendo.systems import detached

    if bool(names) == everything:
        raise ConfigError("name the systems to stop, or give --all")
    for name in detached.names() if everything else names or ():
        print(f"{name} is down" if detached.down(name) else f"{name} was not up")
    return 0


def status(
    names: Annotated[list[str] | None, typer.Argument(metavar="[NAME]...", help="Default: all.")] = None,
    credentials: Annotated[bool, typer.Option("--credentials", help="Show the passwords in the URLs.")] = False,
    as_json: Json = False,
) -> int:
    """Show the running systems. The exit code is 1 when a system that should be up is not."""
    from crescendo.systems import detached

    records = detached.all_systems() if credentials else [_redacted(record) for record in detached.all_systems()]
    if names:
        known = {record.name: record for record in records}
        for name in names:
            if name not in known:
                raise detached.unknown_system(name)
        records = [known[name] for name in names]
    if as_json:
        _print_json([_shown(record) for record in records])
        return _health(records)
    if not records:
        print("no system is up")
    for record in records:
        print(f"{record.name:20} {record.kind:14} {record.state:10} pid {record.facts.get('pid', 'not known')}")
        for endpoint, url in record.endpoints.items():
            print(f"  {endpoint:18} {url}")
    return _health(records)


def _health(records: Sequence["DetachedSystem"]) -> int:
    return 0 if all(record.state == "up" for record in records) else 1


def logs(
    name: Annotated[str, typer.Argument(help="A name as printed by `up`.")],
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Follow the logs until Ctrl-C.")] = False,
) -> int:
    """Print the logs of a system's processes."""
    from crescendo.systems import detached

    paths = [path for path in detached.logs_of(name) if path.is_file()]
    try:
        _print_logs(paths, lambda: follow and detached.find_system(name) is not None)
    except KeyboardInterrupt:
        return 0  # this is how following ends
    except BrokenPipeError:
        # The reader closed the pipe: print no error message at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


def _print_logs(paths: Sequence[Path], follow: Callable[[], bool]) -> None:
    """As bytes, because their encoding is unknown, and in chunks, because they may be long."""
    read = dict.fromkeys(paths, 0)
    last: Path | None = None
    while True:
        grown = False
        for path in paths:
            while chunk := _read_chunk(path, read[path]):
                if len(paths) > 1 and path is not last:
                    sys.stdout.buffer.write(f"==> {path.stem} <==\n".encode())
                grown, last = True, path
                read[path] += len(chunk)
                sys.stdout.buffer.write(chunk)
        sys.stdout.flush()
        if not grown and not follow():
            return
        time.sleep(_FOLLOW_POLL_S if not grown else 0)


def _read_chunk(path: Path, start: int) -> bytes:
    try:
        with open_log(path) as file:
            file.seek(start)
            return file.read(_CHUNK_BYTES)
    except FileNotFoundError:
        return b""  # the system was stopped meanwhile


def _described(kind: SystemKind) -> dict[str, Any]:

    installed, missing = _guarded(lambda: kind.find(None, None).version)
    return {
        "kind": kind.name,
        "summary": kind.summary,
        "protocols": list(protocols_of(kind)),
        "installed": installed,
        "missing": missing,
    }


def _guarded(find: Callable[[], str]) -> tuple[str | None, str | None]:
    try:
        return find(), None
    except ConfigError as err:
        return None, str(err)


def _redacted(record: "DetachedSystem") -> "DetachedSystem":
    """The record without passwords."""
    from crescendo.model.urls import redact_url

    endpoints = {name: redact_url(url) for name, url in record.endpoints.items()}
    return msgspec.structs.replace(record, url=redact_url(record.url), endpoints=endpoints)


def _shown(record: "DetachedSystem") -> dict[str, Any]:
    return {
        "name": record.name,
        "kind": record.kind,
        "state": record.state,
        "pid": record.facts.get("pid"),
        "url": record.url,
        "endpoints": record.endpoints,
        "facts": record.facts,
    }


def _setting(text: str) -> tuple[str, Any]:
    key, equals, value = text.partition("=")
    if not equals:
        from crescendo.model.redaction import override_path

        raise ConfigError(f"--set {override_path(text)}: write key=value, e.g. --set persistence=false")
    if key in _TEXTS:
        return key, value
    import yaml

    try:
        return key, yaml.safe_load(value)
    except yaml.YAMLError as err:
        raise ConfigError(f"--set {key}: the value is not valid YAML; write for example --set queues=[perf]") from err


def _port(text: str) -> tuple[str, int]:
    name, _, number = text.partition("=")
    if not (number.isascii() and number.isdigit()):
        raise ConfigError(f"--port {text}: write name=number, e.g. --port amqp=5672")
    return name, int(number)


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _print_json(document: Any) -> None:
    print(msgspec.json.encode(document).decode())


SYSTEM_VERBS: dict[str, Callable[..., int]] = {
    "list": list_kinds,
    "install": install,
    "up": up,
    "down": down,
    "status": status,
    "logs": logs,
}
"""In the order of the help."""
