"""The verb `import`: turn files of another tool into a recording."""

import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from crescendo.cli.options import Json, UnpackLimit, duration_ns
from crescendo.cli.terminal import Progress
from crescendo.importers.registry import import_formats

if TYPE_CHECKING:
    from crescendo.importers.job import ImportSummary

_SHOWN = 20
"""How many files are listed; a thousand would bury the totals."""


def import_(
    form: Annotated[str, typer.Argument(metavar="FORMAT", help=f"{', '.join(import_formats())}.")],
    paths: Annotated[list[Path], typer.Argument(help="Files or directories.")],
    out: Annotated[
        Path, typer.Option("--out", metavar="RUN", help="The recording to write; a new or empty directory.")
    ],
    period: Annotated[str, typer.Option("--period", help="Length of the periods to sum over (gftp only).")] = "60s",
    clock_bound: Annotated[
        str | None, typer.Option("--clock-bound", help="The largest possible difference between the clocks.")
    ] = None,
    master: Annotated[str | None, typer.Option("--master", help="A Spark master. Default: this machine.")] = None,
    as_json: Json = False,
    limit: UnpackLimit = None,
) -> int:
    """Turn the files of another tool into a recording. Lines that cannot be parsed are set aside and counted."""
    from crescendo.importers.format import ImportOptions, unpack_limits
    from crescendo.importers.job import summary_json
    from crescendo.run.import_session import import_recording

    options = ImportOptions(
        period_ns=duration_ns(period, "--period", min_ns=1),
        clock_bound_ns=None if clock_bound is None else duration_ns(clock_bound, "--clock-bound"),
        limits=unpack_limits(limit or []),
    )
    with Progress() as progress:
        account = import_recording(form, paths, out, options=options, progress=progress, master=master)
    if as_json:
        print(summary_json(account))
    else:
        _print(account, out)
    return 0


def _print(account: "ImportSummary", out: Path) -> None:
    from crescendo.importers.parts import REJECTED

    for source in account.sources[:_SHOWN]:
        aside = f", {source.rejected:,} rejected" if source.rejected else ""
        print(f"  {source.path}: {source.kind}, {source.records:,} read{aside}")
    if len(account.sources) > _SHOWN:
        print(f"  and {len(account.sources) - _SHOWN:,} more files")
    for refused in account.refused:
        print(f"  refused {refused}", file=sys.stderr)
    if account.skipped:
        print(f"  skipped {len(account.skipped):,} files of other kinds", file=sys.stderr)
    print("msgs   " + (", ".join(f"{what} {count:,}" for what, count in account.messages.items()) or "none"))
    print("rows   " + (", ".join(f"{table} {rows:,}" for table, rows in account.tables.items()) or "none"))
    if account.start_ns is not None and account.end_ns is not None:
        print(f"time   {_moment(account.start_ns)} to {_moment(account.end_ns)}")
    if account.rejected:
        print(f"reject {account.rejected:,} lines, kept with their reasons in {out / REJECTED}")
    for caveat in account.caveats:
        print(f"note   {caveat}")
    print(f"run    {out}")


def _moment(t_ns: int) -> str:
    return datetime.fromtimestamp(t_ns / 1e9, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
