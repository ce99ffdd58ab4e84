"""Which verbs are there, and which exit code does each ending have?

Thin: it lists the verbs in the order of the help, and turns errors into one sentence and an exit code.
0: pass. 1: fail. 2: the user must change something. 3: invalid, nothing can be said. Does no work of its own.
"""

import sys
from typing import Annotated

import typer

from crescendo import __version__
from crescendo.cli.plugin_verbs import PluginVerbs
from crescendo.cli.schema import schema
from crescendo.cli.verbs import analysing, machine, running
from crescendo.cli.verbs.systems import system

EXIT_USAGE, EXIT_INVALID = 2, 3
_TYPER_INTERRUPTED = 130

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


for verb in (
    running.demo,
    running.run,
    analysing.analyze,
    analysing.compare,
    analysing.report,
    analysing.export,
    machine.doctor,
    machine.calibrate,
    machine.broker,
):
    app.command()(verb)
app.command("import")(analysing.import_)
app.command()(analysing.logs)
app.command()(schema)
app.command()(running.watch)
app.command(hidden=True)(running.peer)
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
