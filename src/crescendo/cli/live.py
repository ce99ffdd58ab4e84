"""What does a person see while a run goes on?

Two columns, senders and receivers, from the statistics that peers report every second. On a terminal the picture is
redrawn in place; in a log one line is printed every two seconds.
"""

import sys
import time
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.live import Live
from rich.table import Table

from crescendo.control.conductor import Run, Stage
from crescendo.model.units import format_ns

_REDRAW_NS = 500_000_000
_LINE_NS = 2_000_000_000
_SHOWN = (Stage.RUNNING, Stage.DRAINING, Stage.STOPPING)


class LiveView:
    """Shows a run; a context manager around it."""

    def __init__(self) -> None:
        console = Console(stderr=True, highlight=False)
        self._live = Live(console=console, auto_refresh=False, transient=True) if console.is_terminal else None
        self._next_ns = 0
        self._started = False

    def __call__(self, run: Run) -> None:
        now_ns = time.monotonic_ns()
        if run.stage not in _SHOWN or run.t0_ns is None or now_ns < self._next_ns:
            return
        if self._live is None:
            self._next_ns = now_ns + _LINE_NS
            print(f"  {_line(run, now_ns)}", file=sys.stderr, flush=True)
            return
        self._next_ns = now_ns + _REDRAW_NS
        if not self._started:
            self._started = True
            self._live.start()
        self._live.update(_picture(run, now_ns), refresh=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, err: BaseException | None, tb: TracebackType | None) -> None:
        if self._live is not None and self._started:
            self._live.stop()


def _phase(run: Run, now_ns: int) -> str:
    if run.stage is not Stage.RUNNING or run.t0_ns is None:
        return run.stage.value
    elapsed_ns = now_ns - run.t0_ns
    if elapsed_ns < run.plan.warmup_ns:
        return f"warm-up {max(elapsed_ns, 0) / 1e9:.0f} of {run.plan.warmup_ns / 1e9:.0f} s"
    elapsed_ns -= run.plan.warmup_ns
    if run.plan.measure_ns is None:
        return f"measure {elapsed_ns / 1e9:.0f} s"
    if elapsed_ns > run.plan.measure_ns:
        return "the senders are behind"
    return f"measure {elapsed_ns / 1e9:.0f} of {run.plan.measure_ns / 1e9:.0f} s"


def _side(run: Run, role: str) -> tuple[float, int, int | None, float]:
    """Rate, total, worst p99 and cores over the peers of one role."""
    reports = [peer.statistics for peer in run.peers.values() if peer.plan.role == role and peer.statistics]
    worst = max((report.p99_ns for report in reports if report.p99_ns is not None), default=None)
    return (
        sum(report.rate for report in reports),
        sum(report.messages for report in reports),
        worst,
        sum(report.cpu for report in reports),
    )


def _line(run: Run, now_ns: int) -> str:
    sent_rate, sent, _, _ = _side(run, "sender")
    rate, received, p99_ns, _ = _side(run, "receiver")
    p99 = "" if p99_ns is None else f", p99 {format_ns(p99_ns)}"
    return f"{_phase(run, now_ns)}: sent {sent:,} ({sent_rate:,.0f}/s), received {received:,} ({rate:,.0f}/s{p99})"


def _picture(run: Run, now_ns: int) -> Table:
    table = Table(title=_phase(run, now_ns), title_justify="left", title_style="bold", pad_edge=False)
    for name, justify in (("", "left"), ("msg/s", "right"), ("total", "right"), ("p99", "right"), ("CPU", "right")):
        table.add_column(name, justify="right" if justify == "right" else "left", min_width=9)
    for name, role, meaning in (("senders", "sender", "late"), ("receivers", "receiver", "response")):
        rate, total, p99_ns, cores = _side(run, role)
        p99 = "–" if p99_ns is None else f"{format_ns(p99_ns)} {meaning}"
        table.add_row(name, f"{rate:,.0f}", f"{total:,}", p99, f"{cores * 100:.0f} %")
    return table
