"""The verb `torture`: break a system at random times, and find the fewest faults that make it lose messages."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from crescendo.cli.options import duration_ns

if TYPE_CHECKING:
    from crescendo.run.random_breakage import TortureResult


def torture(
    system: Annotated[str, typer.Argument(metavar="SYSTEM", help="A kind of system that Crescendo starts.")],
    lasts: Annotated[str, typer.Option("--for", metavar="DURATION", help="How long to keep going.")] = "10m",
    seed: Annotated[int, typer.Option("--seed", min=0, help="Seed of the first round; each later one adds 1.")] = 1,
    measure: Annotated[str, typer.Option("--measure", metavar="DURATION", help="The load of each round.")] = "10s",
    do: Annotated[
        list[str] | None, typer.Option("--do", metavar="ACTION", help="Only these faults. Repeatable.")
    ] = None,
    setting: Annotated[
        list[str] | None, typer.Option("--set", metavar="PATH=VALUE", help="Change the workload or the system.")
    ] = None,
    out: Annotated[Path, typer.Option("--out", help="Rounds that fail are kept below this directory.")] = Path("runs"),
) -> int:
    """Break SYSTEM at random times under a durable load; nothing that it acknowledged may be lost.

    The same seed gives the same faults. A round that loses something is shrunk to the fewest faults that still do, and
    saved as an experiment file. Exit code 1 if one was found, 3 if no round could be judged.
    """
    from crescendo.model.units import Duration
    from crescendo.run.interruption import Interruption
    from crescendo.run.random_breakage import durable_experiment, possible_actions
    from crescendo.run.random_breakage import torture as carry_out

    for_ns, measure_ns = duration_ns(lasts, "--for"), Duration(duration_ns(measure, "--measure"))
    actions = possible_actions(do or ())
    experiment = durable_experiment(system, measure_ns, tuple(setting or ()))

    print(f"torture of {system}: {', '.join(actions)}; Ctrl-C ends it", file=sys.stderr, flush=True)
    with Interruption() as interruption:
        result = carry_out(
            experiment,
            seed=seed,
            for_ns=for_ns,
            out=out,
            actions=actions,
            observer=interruption,
            report=lambda line: print(line, flush=True),
        )
    return _conclude(system, result)


def _conclude(system: str, result: "TortureResult") -> int:
    if result.failing is not None:
        from crescendo.run.random_breakage import described

        faults = ", ".join(described(fault) for fault in result.shortest)
        print(f"FAIL · {system} loses acknowledged messages: {faults} · {result.file}", flush=True)
        return 1
    judged = f"{result.judged} of {len(result.rounds)} rounds judged"
    if not result.judged:
        print(f"INVALID · {judged}", flush=True)
        return 3
    print(f"PASS · nothing that was acknowledged was lost · {judged}", flush=True)
    return 0
