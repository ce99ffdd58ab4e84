"""The verb `torture`: random faults against a durable workload, until something acknowledged is lost."""

import json
from pathlib import Path
from typing import Annotated

import typer

from crescendo.cli.options import Json, Out


def torture(
    system: Annotated[str, typer.Argument(help="A kind of system, such as rabbitmq; see crescendo system list.")],
    lasts: Annotated[str, typer.Option("--for", help="For how long, such as 10m.")] = "10m",
    seed: Annotated[int, typer.Option("--seed", min=0, help="The same seed draws the same timelines.")] = 1,
    out: Out = Path("runs"),
    as_json: Json = False,
) -> int:
    """Break a system at random times while it carries a durable load; nothing acknowledged may be lost.

    A timeline that loses a message is shortened to what still loses one, and saved as an experiment file. The exit code
    is 0 if nothing was lost, 1 if something was, 3 if no run could be judged.
    """
    import crescendo
    from crescendo.model.errors import ConfigError
    from crescendo.model.experiment import Experiment
    from crescendo.model.units import Duration
    from crescendo.record.manifest import State
    from crescendo.run.random_faults import torture as run_torture
    from crescendo.systems.registry import system_of

    try:
        lasts_s = Duration.parse(lasts) / 1e9
    except ValueError as err:
        raise ConfigError(f"--for: {err}") from None
    system_of(system)
    with crescendo.Analyst() as analyst, crescendo.Interruption() as interruption:

        def lost(experiment: Experiment) -> int | None:
            result = crescendo.run(
                experiment,
                out=out,
                analyst=analyst,
                report=False,
                durable=False,
                interruption=interruption,
                command=["crescendo", "torture", system, "--seed", str(seed)],
            )
            if result.state is State.INTERRUPTED:
                raise KeyboardInterrupt
            sealed = result.state is State.SEALED and result.summary is not None
            return result.summary.total.lost_acknowledged if sealed and result.summary else None

        found = run_torture(
            system, seed=seed, lasts_s=lasts_s, out=out, lost=lost, report=lambda line: typer.echo(line, err=True)
        )
    document = {
        "system": system,
        "seed": seed,
        "tries": found.tries,
        "unknown": found.unknown,
        "lost": found.lost,
        "faults": len(found.shortest),
        "saved": None if found.saved is None else str(found.saved),
    }
    if as_json:
        print(json.dumps(document))
    elif found.saved is not None:
        print(f"TORTURE {found.lost:,} acknowledged messages lost · {len(found.shortest)} faults · {found.saved}")
    else:
        print(f"TORTURE nothing acknowledged was lost · {found.tries} timelines, {found.unknown} of them not judged")
    if found.saved is not None:
        return 1
    return 3 if found.unknown == found.tries else 0
