"""The verb `run`: run one experiment, or search for the highest rate, and print the result."""

from pathlib import Path
from typing import Annotated

import typer

from crescendo.cli.options import Json, Out


def run(
    experiment: Annotated[Path, typer.Argument(help="An experiment file, such as experiments/quick/amqp10.yml.")],
    overrides: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="PATH=VALUE", help="Change a key, e.g. --set workload.rate=5000. Repeatable."),
    ] = None,
    out: Out = Path("runs"),
    control: Annotated[
        str | None,
        typer.Option("--control", metavar="URL", help="Use this MQTT broker for control instead of the embedded one."),
    ] = None,
    live: Annotated[
        bool, typer.Option("--live", help="Show live tables: rates and percentiles of each second, by Spark.")
    ] = False,
    master: Annotated[
        str | None, typer.Option("--master", help="A Spark master for the analysis. Default: this machine.")
    ] = None,
    as_json: Json = False,
) -> int:
    """Run one experiment, analyse it, write the report, print the verdict.

    The exit code is the verdict: 0 pass, 1 fail, 3 invalid (the evidence is not sound); 2 means that the file or the
    system needs your attention first. Ctrl-C stops everything and keeps the partial recording.
    """
    from crescendo.cli.run_view import run_and_show, search_and_show
    from crescendo.model.errors import ConfigError
    from crescendo.model.experiment_file import load_experiment, redact_override
    from crescendo.pipeline.spark.settings import check_master

    if master is not None:
        check_master(master)
    loaded = load_experiment(experiment, tuple(overrides or ()))
    command = ["crescendo", "run", str(experiment)]
    for override in overrides or ():
        command += ["--set", redact_override(override)]
    if live:
        command.append("--live")
    if master is not None:
        command += ["--master", master]
    if loaded.search is None:
        return run_and_show(loaded, command, out, control=control, master=master, live=live, as_json=as_json)
    if live:
        raise ConfigError(f"--live: it follows a single run, but {experiment} is a search over many; remove it")
    return search_and_show(loaded, command, out, control=control, master=master, as_json=as_json)
