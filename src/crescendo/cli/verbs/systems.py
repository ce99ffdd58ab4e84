"""The arguments of the verbs that install, start, inspect and stop systems under test."""

from pathlib import Path
from typing import Annotated

import typer

from crescendo.cli.verbs.options import Json

system = typer.Typer(
    help="Start and stop real brokers and routers on this machine.\n\n"
    "A system started by [bold]up[/bold] keeps running, on free ports of the loopback interface, until "
    "[bold]down[/bold].",
    no_args_is_help=True,
)

KindName = Annotated[str, typer.Argument(metavar="KIND", help="A kind from `crescendo system list`.")]


@system.command("list")
def system_list(json: Json = False) -> None:
    """Show the kinds of systems, their protocols, and whether they are installed."""
    from crescendo.cli.system import list_kinds as verb

    raise typer.Exit(verb(json))


@system.command("install")
def system_install(
    kind: KindName,
    version: Annotated[str | None, typer.Option("--version", help="A version other than the default.")] = None,
    json: Json = False,
) -> None:
    """Install a system: the distribution's package or a Maven artifact. Does nothing if it is already installed."""
    from crescendo.cli.system import install as verb

    raise typer.Exit(verb(kind, version, json))


@system.command("up")
def system_up(
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
    home: Annotated[Path | None, typer.Option("--home", help="The directory of your own installation.")] = None,
    version: Annotated[str | None, typer.Option("--version", help="Which installed version to use.")] = None,
    json: Json = False,
) -> None:
    """Start a system, wait until a message has passed through it, and print its URLs."""
    from crescendo.cli.system import up as verb

    raise typer.Exit(verb(kind, name, settings or (), ports or (), home, version, json))


@system.command("down")
def system_down(
    names: Annotated[list[str] | None, typer.Argument(metavar="[NAME]...", help="Names as printed by `up`.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="All of them.")] = False,
) -> None:
    """Stop systems and remove their files. Stopping a system that is already down is not an error."""
    from crescendo.cli.system import down as verb

    raise typer.Exit(verb(names or (), everything))


@system.command("status")
def system_status(
    names: Annotated[list[str] | None, typer.Argument(metavar="[NAME]...", help="Default: all.")] = None,
    json: Json = False,
) -> None:
    """Show the running systems. The exit code is 1 when a system that should be up is not."""
    from crescendo.cli.system import status as verb

    raise typer.Exit(verb(names or (), json))


@system.command("logs")
def system_logs(
    name: Annotated[str, typer.Argument(help="A name as printed by `up`.")],
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Follow the logs until Ctrl-C.")] = False,
) -> None:
    """Print the logs of a system's processes."""
    from crescendo.cli.system import logs as verb

    raise typer.Exit(verb(name, follow))
