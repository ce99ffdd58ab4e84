"""The verb `watch`: live tables of a run in progress; also the lines in which `run --live` shows its own.

On a terminal the latest periods are shown in a table that is redrawn. Elsewhere a line is printed when a period is
closed: from then on it cannot change.
"""

from contextlib import ExitStack
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING, Annotated, Self

import msgspec
import typer

from crescendo.cli.options import duration_ns
from crescendo.cli.terminal import Progress
from crescendo.model.errors import ConfigError
from crescendo.model.units import format_ns
from crescendo.pipeline.live.snapshot import LiveTotals, Period, Snapshot

if TYPE_CHECKING:
    from rich.table import Table

_ROWS = 15
_MIN_NS = 10**8


def watch(
    run: Annotated[
        str, typer.Argument(metavar="RUN", help="The recording of a run in progress; - reads its path from stdin.")
    ],
    period: Annotated[str, typer.Option("--period", help="The period of a row, e.g. 1s or 10s.")] = "1s",
    late_after: Annotated[
        str, typer.Option("--late-after", help="How far a part may lag behind the latest message and still count.")
    ] = "15s",
    as_json: Annotated[bool, typer.Option("--json", help="Print every update as a line of JSON.")] = False,
) -> int:
    """Follow a run in progress: messages sent, received and settled in each second, and their latencies.

    Start it in another terminal, or use `crescendo run --live`. A second is closed about 20 s later, when no part of
    the recording can add to it any more; messages after that count as late. Ends with the run, or on Ctrl-C. A run that
    is watched on its own machine is marked as observed, because the watcher uses a core.
    """
    period_ns = _whole_us(period, "--period", min_ns=_MIN_NS)
    late_after_ns = _whole_us(late_after, "--late-after")
    from crescendo.run.live_watch import live_watch

    with ExitStack() as opened:
        with Progress() as progress:
            progress("starting Spark")
            follow = opened.enter_context(live_watch(run, period_ns=period_ns, late_after_ns=late_after_ns))
        follow(View(as_json))
    return 0


def _whole_us(text: str, option: str, *, min_ns: int = 0) -> int:
    length_ns = duration_ns(text, option, min_ns=min_ns)
    if length_ns % 1000:
        raise ConfigError(f"{option} {text}: finer than a microsecond; give whole microseconds")
    return length_ns


class View:
    """Shows each snapshot that it is called with. Use as a context manager."""

    def __init__(self, as_json: bool) -> None:
        from rich.console import Console
        from rich.live import Live

        console = Console(highlight=False)
        self._as_json = as_json
        self._latest: dict[int, Period] = {}
        self._live = Live(console=console, auto_refresh=False) if console.is_terminal and not as_json else None

    def __call__(self, snapshot: Snapshot) -> None:
        if self._as_json:
            print(msgspec.json.encode(snapshot).decode(), flush=True)
        elif self._live is None:
            for line in lines_of(snapshot):
                print(line, flush=True)
        else:
            self._latest |= {period.start_ns: period for period in snapshot.periods}
            self._latest = dict(sorted(self._latest.items())[-_ROWS:])
            self._live.update(_table(snapshot, list(self._latest.values())), refresh=True)

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, err: BaseException | None, tb: TracebackType | None) -> None:
        if self._live is not None:
            self._live.stop()


def lines_of(snapshot: Snapshot) -> list[str]:
    """One line per closed period, and one at the end."""
    lines = [_line(period) for period in snapshot.periods if period.closed]
    return [*lines, _closing(snapshot.account)] if snapshot.ended else lines


def _line(period: Period) -> str:
    parts = [
        _clock(period.start_ns),
        *(f"{name} {period.rate(getattr(period, name)):,.0f}/s" for name in ("sent", "received", "settled")),
        *(
            f"{kind} p50 {_percentile(period, kind, 'p50')} p99 {_percentile(period, kind, 'p99')}"
            for kind in _kinds(period)
        ),
    ]
    return "  ".join(parts)


def _closing(account: LiveTotals) -> str:
    late = f", {account.late_parts:,} of {account.parts:,} parts late with {account.late_messages:,} messages"
    counts = f"sent {account.sent:,}, received {account.received:,}, settled {account.settled:,}"
    return f"live tables: {counts}{late if account.late_parts else f', {account.parts:,} parts, none late'}"


def _table(snapshot: Snapshot, periods: list[Period]) -> "Table":
    from rich import box
    from rich.table import Table

    table = Table(title=snapshot.run, caption=_closing(snapshot.account), box=box.SIMPLE_HEAD, title_justify="left")
    kind = next((kind for period in reversed(periods) for kind in _kinds(period)), "response")
    for name in ("", "sent/s", "received/s", "settled/s", f"{kind} p50", "p99", "max", "settle p99", ""):
        table.add_column(name, justify="right")
    for period in periods:
        spread = period.latency.get(kind)
        # Parts of an open period may be missing: a low number would look like an outage.
        least = "" if period.closed else "≥ "
        table.add_row(
            _clock(period.start_ns),
            *(f"{least}{period.rate(count):,.0f}" for count in (period.sent, period.received, period.settled)),
            _percentile(period, kind, "p50"),
            _percentile(period, kind, "p99"),
            format_ns(spread.max_ns) if spread else "–",
            _percentile(period, "settle", "p99"),
            "" if period.closed else "incomplete",
        )
    return table


def _kinds(period: Period) -> list[str]:
    """Response where messages have due times, transfer where they have none."""
    return [next((kind for kind in ("response", "transfer") if kind in period.latency), "")] if period.received else []


def _percentile(period: Period, kind: str, name: str) -> str:
    spread = period.latency.get(kind)
    value = spread.percentiles_ns[name] if spread else None
    return "–" if value is None else format_ns(value)


def _clock(t_ns: int) -> str:
    return datetime.fromtimestamp(t_ns / 1e9).astimezone().strftime("%H:%M:%S")
