"""Which verbs are there, and which exit code does each ending have?

Thin: it lists the verbs in the order of the help, and turns errors into one sentence and an exit code.
0: pass. 1: fail. 2: the user must change something. 3: invalid, nothing can be said. Does no work of its own.
"""

import functools
import sys
from collections.abc import Callable
from typing import Annotated, Any

import typer
from typer.main import get_command

from crescendo import __version__
from crescendo.cli.analyze import analyze
from crescendo.cli.baseline import BASELINE_HELP, BASELINE_VERBS
from crescendo.cli.broker import broker
from crescendo.cli.calibrate import calibrate
from crescendo.cli.campaign import campaign
from crescendo.cli.cluster_verbs import CLUSTER_HELP, CLUSTER_VERBS
from crescendo.cli.compare import compare
from crescendo.cli.control import control
from crescendo.cli.demo import demo
from crescendo.cli.doctor import doctor
from crescendo.cli.export import export
from crescendo.cli.gate import gate
from crescendo.cli.history import history
from crescendo.cli.import_ import import_
from crescendo.cli.init import init
from crescendo.cli.logs import logs
from crescendo.cli.mlmq import MLMQ_HELP, MLMQ_VERBS
from crescendo.cli.model import model
from crescendo.cli.old_runs import RUNS_HELP, RUNS_VERBS
from crescendo.cli.peer import peer
from crescendo.cli.plugin_verbs import PluginVerbs
from crescendo.cli.report import report
from crescendo.cli.run import run
from crescendo.cli.schema import schema
from crescendo.cli.study import study
from crescendo.cli.system import SYSTEM_HELP, SYSTEM_VERBS
from crescendo.cli.topology import TOPOLOGY_HELP, TOPOLOGY_VERBS
from crescendo.cli.torture import torture
from crescendo.cli.try_ import try_
from crescendo.cli.watch import watch
from crescendo.cli.web import web

EXIT_USAGE, EXIT_INVALID = 2, 3
_TYPER_INTERRUPTED = 130

VERBS: dict[str, dict[str, Callable[..., int]]] = {
    "Measure": {
        "demo": demo,
        "try": try_,
        "init": init,
        "run": run,
        "campaign": campaign,
        "study": study,
        "torture": torture,
        "web": web,
        "watch": watch,
    },
    "Look at results": {
        "analyze": analyze,
        "report": report,
        "compare": compare,
        "gate": gate,
        "history": history,
        "model": model,
        "import": import_,
        "export": export,
        "logs": logs,
    },
    "Serve and control": {
        "broker": broker,
        "peer": peer,
        "control": control,
    },
    "This machine": {
        "doctor": doctor,
        "calibrate": calibrate,
        "schema": schema,
    },
}
"""By panel, in the order of the help. A verb is a function with typer's annotations that returns its exit code."""

GROUPS = (
    ("runs", "Look at results", RUNS_HELP, RUNS_VERBS),
    ("baseline", "Look at results", BASELINE_HELP, BASELINE_VERBS),
    ("system", "Serve and control", SYSTEM_HELP, SYSTEM_VERBS),
    ("mlmq", "Serve and control", MLMQ_HELP, MLMQ_VERBS),
    ("topology", "Serve and control", TOPOLOGY_HELP, TOPOLOGY_VERBS),
    ("cluster", "Serve and control", CLUSTER_HELP, CLUSTER_VERBS),
)

app = typer.Typer(
    name="crescendo",
    cls=PluginVerbs,
    help=(
        "A performance laboratory for message brokers and routers.\n\n"
        "Start with [bold]crescendo demo[/bold]: it needs no broker, takes half a minute, and ends with a verdict and "
        "a report. Then measure your own system: [bold]crescendo try URL[/bold]; [bold]crescendo init[/bold] writes an "
        "experiment file to go on with."
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


for panel, verbs in VERBS.items():
    for name, verb in verbs.items():
        app.command(name, rich_help_panel=panel)(_exiting(verb))
for name, panel, help_text, verbs in GROUPS:
    group = typer.Typer(help=help_text, no_args_is_help=True)
    for verb_name, verb in verbs.items():
        group.command(verb_name)(_exiting(verb))
    app.add_typer(group, name=name, rich_help_panel=panel)


def own_verbs() -> frozenset[str]:
    """The names of verbs and groups that plugins cannot take."""
    return frozenset(getattr(get_command(app), "commands", {}))


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
