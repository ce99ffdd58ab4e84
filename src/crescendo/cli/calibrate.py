"""The verb `calibrate`: the maximum rate of this machine's load generator."""

import time
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from crescendo.cli.options import Json
from crescendo.cli.terminal import EXIT_CODES, Progress
from crescendo.model.protocols import OWN
from crescendo.model.verdict import Outcome
from crescendo.processes.die_with_parent import die_with_parent

if TYPE_CHECKING:
    from crescendo.calibrate.calibration_file import Ceiling

CALIBRATED = ", ".join(name for name, protocol in OWN.items() if protocol.null_server is not None)


def calibrate(
    protocols: Annotated[
        list[str] | None, typer.Argument(metavar="[PROTOCOL]...", help=f"{CALIBRATED}. Default: all.")
    ] = None,
    sizes: Annotated[
        list[int] | None,
        typer.Option("--size", metavar="BYTES", help="A payload size. Repeatable. Default: three sizes."),
    ] = None,
    seconds: Annotated[float, typer.Option("--seconds", help="How long each trial lasts.")] = 1.0,
    as_json: Json = False,
) -> int:
    """Measure how much load this machine can generate, and save it: verdicts then say how close a run came to that.

    Sends to and receives from null servers on this machine: processes that do a protocol's handshake and nothing else.
    Takes a minute and a half by default; run it while the machine is idle.
    """
    from crescendo.calibrate.calibration_file import machine_of, save_ceilings
    from crescendo.calibrate.ceilings import SIZES, check, measure_all
    from crescendo.calibrate.registry import calibrated_protocols
    from crescendo.run import host_facts

    protocols, sizes = protocols or calibrated_protocols(), sorted(set(sizes or SIZES))
    check(protocols, sizes, seconds)
    machine = machine_of(host_facts.host(), host_facts.versions())
    with Progress() as progress:
        ceilings = measure_all(protocols, sizes, seconds=seconds, progress=progress, on_fork=die_with_parent())
    path = save_ceilings(machine, ceilings, time.time_ns())
    doubtful = [ceiling for ceiling in ceilings if ceiling.is_doubtful]
    code = EXIT_CODES[Outcome.INVALID if doubtful else Outcome.PASS]
    if as_json:
        print(msgspec.json.encode({"machine": machine, "path": str(path), "ceilings": ceilings}).decode())
        return code
    _print_table(ceilings)
    print(f"{machine.cores} cores, {machine.processor or 'unknown processor'}; kept in {path}")
    if doubtful:
        print(
            f"{len(doubtful)} of {len(ceilings)} ceilings are doubtful and will not be used: our own loop stood still "
            "while they were measured. Calibrate again while the machine is idle."
        )
    return code


def _print_table(ceilings: "list[Ceiling]") -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title="msg/s of one process against a null server", title_justify="left", box=None, padding=(0, 2))
    for name in ("protocol", "role"):
        table.add_column(name)
    for name in ("bytes", "ceiling", "lowest", "highest"):
        table.add_column(name, justify="right")
    table.add_column("")
    for one in ceilings:
        numbers = (f"{number:,.0f}" for number in (one.rate, one.lowest, one.highest))
        table.add_row(one.protocol, one.role, f"{one.size:,}", *numbers, "doubtful" if one.is_doubtful else "")
    Console(highlight=False).print(table)
