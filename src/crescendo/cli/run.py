"""The verb `run`: run one experiment, or search for the highest rate, and print the result."""

from pathlib import Path
from typing import Annotated

import typer

from crescendo.cli.options import Control, ControlFile, Json, NoFsync, Out, SetFile, TokenFile


def run(
    experiment: Annotated[Path, typer.Argument(help="An experiment file, such as experiments/quick/amqp10.yml.")],
    overrides: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="PATH=VALUE", help="Change a key, e.g. --set workload.rate=5000. Repeatable."),
    ] = None,
    files: SetFile = None,
    out: Out = Path("runs"),
    control: Control = None,
    control_file: ControlFile = None,
    token_file: TokenFile = None,
    standing: Annotated[
        bool, typer.Option("--standing", help="Use the lab's standing peers as senders and receivers.")
    ] = False,
    live: Annotated[
        bool, typer.Option("--live", help="Show live tables: rates and percentiles of each second, computed by Spark.")
    ] = False,
    master: Annotated[
        str | None, typer.Option("--master", help="A Spark master for the analysis. Default: this machine.")
    ] = None,
    no_fsync: NoFsync = False,
    sweep: Annotated[
        list[str] | None,
        typer.Option("--sweep", metavar="PATH=A,B,C", help="Run, or search, at each value. Repeatable for runs."),
    ] = None,
    repeat: Annotated[int, typer.Option("--repeat", min=1, help="Run each of them this often, as a campaign.")] = 1,
    metrics: Annotated[
        int | None,
        typer.Option(
            "--metrics", metavar="PORT", min=0, max=65535, help="Serve live figures to Prometheus, on loopback."
        ),
    ] = None,
    as_json: Json = False,
) -> int:
    """Run one experiment, analyse it, write the report, print the verdict.

    The exit code is the verdict: 0 pass, 1 fail, 3 invalid (the evidence is not sound); 2 means that the file or the
    system needs your attention first. Ctrl-C stops everything and keeps the partial recording.
    """
    from crescendo.cli.run_view import run_and_show, search_and_show
    from crescendo.cli.secret_options import read_set_file, read_token, secret_url, warn_of_secrets
    from crescendo.model.errors import ConfigError
    from crescendo.model.experiment_file import load_experiment, to_document
    from crescendo.model.redaction import redact_override
    from crescendo.pipeline.spark.settings import check_master
    from crescendo.run.control_access import ControlAccess

    if master is not None:
        check_master(master)
    lab = read_token(token_file)
    url = secret_url("--control", control, control_file)
    access = ControlAccess(url, None if lab is None else lab.token, standing)
    loaded = load_experiment(experiment, tuple(overrides or ()), dict(map(read_set_file, files or ())))
    warn_of_secrets(overrides or ())
    command = ["crescendo", "run", str(experiment)]
    for override in overrides or ():
        command += ["--set", redact_override(override)]
    for text in files or ():
        command += ["--set-file", text]
    if standing:
        command.append("--standing")
    if live:
        command.append("--live")
    if master is not None:
        command += ["--master", master]
    if no_fsync:
        command.append("--no-fsync")
    if metrics is not None:
        command += ["--metrics", str(metrics)]
    durable = not no_fsync
    if sweep or repeat > 1:
        from crescendo.cli.campaign import run_campaign_and_show
        from crescendo.model.campaign_file import swept

        if live:
            raise ConfigError("--sweep and --repeat cannot be combined with --live; remove it")
        if loaded.search is not None:
            if repeat > 1 or len(sweep or ()) != 1:
                raise ConfigError("--sweep: a search goes over one factor, and confirms its answer itself; give one")
            from crescendo.cli.capacity_view import capacity_and_show

            return capacity_and_show(
                to_document(loaded), (sweep or [""])[0], command, out, control=access, master=master, durable=durable,
                metrics=metrics, as_json=as_json,
            )  # fmt: skip
        plan = swept(to_document(loaded), sweep or (), repeat, source=str(experiment), name=loaded.name)
        return run_campaign_and_show(
            plan, command, out, control=access, master=master, durable=durable, metrics=metrics, as_json=as_json
        )
    if loaded.search is None:
        return run_and_show(
            loaded,
            command,
            out,
            control=access,
            master=master,
            live=live,
            durable=durable,
            metrics=metrics,
            as_json=as_json,
        )
    if live:
        raise ConfigError(f"--live: it follows a single run, but {experiment} is a search over many; remove it")
    return search_and_show(
        loaded, command, out, control=access, master=master, durable=durable, metrics=metrics, as_json=as_json
    )
