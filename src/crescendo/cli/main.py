"""Which verbs are there, and which exit code does each ending have?

Thin: it lists the verbs in the order of the help, and turns errors into one sentence and an exit code.
0: pass. 1: fail. 2: the user must change something. 3: invalid, nothing can be said. Does no work of its own.
"""

import functools
import sys
from collections.abc import Callable
from typing import Annotated, Any

import typer

from crescendo import __version__
from crescendo.cli.analyze import analyze
from crescendo.cli.broker import broker
from crescendo.cli.calibrate import calibrate
from crescendo.cli.compare import compare
from crescendo.cli.demo import demo
from crescendo.cli.doctor import doctor
from crescendo.cli.export import export
from crescendo.cli.import_ import import_
from crescendo.cli.logs import logs
from crescendo.cli.peer import peer
from crescendo.cli.plugin_verbs import PluginVerbs
from crescendo.cli.report import report
from crescendo.cli.run import run
from crescendo.cli.schema import schema
from crescendo.cli.system import SYSTEM_HELP, SYSTEM_VERBS
from crescendo.cli.watch import watch

EXIT_USAGE, EXIT_INVALID = 2, 3
_TYPER_INTERRUPTED = 130

VERBS: dict[str, Callable[..., int]] = {
    "demo": demo,
    "run": run,
    "analyze": analyze,
    "compare": compare,
    "report": report,
    "export": export,
    "doctor": doctor,
    "calibrate": calibrate,
    "broker": broker,
    "import": import_,
    "logs": logs,
    "schema": schema,
    "watch": watch,
    "peer": peer,
}
"""In the order of the help. A verb is a function with typer's annotations that returns its exit code."""

HIDDEN = ("peer",)

app = typer.Typer(
    name="crescendo",
    cls=PluginVerbs,
    help=(
        "A performance laboratory for message brokers and routers.\n\n"
        "Start with [bold]crescendo demo[/bold]: it needs no broker, takes half a minute, and ends with a verdict and "
        "a report. Then copy an experiment file and point it at your own system."
    ),
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
)


def _version(wanted: bool) -> None:
    if wanted:
        print(f"crescendo {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    _: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")] = False,
) -> None:
    pass


def _exiting(verb: Callable[..., int]) -> Callable[..., None]:
    """The verb as a command that ends with the exit code which the verb returns."""

    @functools.wraps(verb)
    def command(*arguments: Any, **options: Any) -> None:
        raise typer.Exit(verb(*arguments, **options))

    return command


for name, verb in VERBS.items():
    app.command(name, hidden=name in HIDDEN)(_exiting(verb))
system = typer.Typer(help=SYSTEM_HELP, no_args_is_help=True)
for name, verb in SYSTEM_VERBS.items():
    system.command(name)(_exiting(verb))
app.add_typer(system, name="system")


def main() -> None:
    """The one error handler: a user's mistake becomes one sentence on stderr, never a traceback."""
    from crescendo.model.errors import ConfigError, CrescendoError

    try:
        app()
    except ConfigError as err:
        _exit_with(str(err), EXIT_USAGE)
    except CrescendoError as err:
        _exit_with(str(err), EXIT_INVALID)
    except KeyboardInterrupt:
        _exit_with("interrupted", EXIT_INVALID)
    except SystemExit as err:
        if err.code == _TYPER_INTERRUPTED:  # typer prints nothing itself
            _exit_with("interrupted", EXIT_INVALID)
        raise


def _exit_with(sentence: str, code: int) -> None:
    print(f"crescendo: {sentence}", file=sys.stderr)
    sys.exit(code)


if __name__ == "__main__":
    main()
