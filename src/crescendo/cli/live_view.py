"""What does `crescendo run` show while a run is in progress?

Two columns, senders and receivers, from the statistics that peers report every second. On a terminal the table is
redrawn in place; in a log one line is printed every two seconds. Peers report at different moments, so only rates are
shown: totals of different moments would look like lost messages. Computes nothing else.
"""

import sys
import time
from types import TracebackType
from typing import NamedTuple, Self

from rich import box
from rich.console import Console
from rich.live import Live
from rich.table import Table

from crescendo.control.conductor.state import RunState, Stage
from crescendo.model.units import format_ns

_REDRAW_NS = 500_000_000
_LINE_NS = 2_000_000_000
_SHOWN = (Stage.RUNNING, Stage.DRAINING, Stage.STOPPING)


class RoleStatistics(NamedTuple):
    """The totals of all peers of one role; the p99 is the worst of theirs."""

    rate: float
    p99_ns: int | None
    cores: float


class LiveView:
    """Shows the state of a run. Use as a context manager."""

    def __init__(self) -> None:
        console = Console(stderr=True, highlight=False)
        self._live = Live(console=console, auto_refresh=False, transient=True) if console.is_terminal else None
        self._next_ns = 0
        self._started = False

    def __call__(self, run: RunState) -> None:
        now_ns = time.monotonic_ns()
        if run.stage not in _SHOWN or run.t0_ns is None or now_ns < self._next_ns:
            return
        if not all(_has_reported(run, role) for role in ("sender", "receiver")):
            return  # a side that has not reported yet would look like one that does nothing
        if self._live is None:
            self._next_ns = now_ns + _LINE_NS
            print(f"  {_line(run, now_ns)}", file=sys.stderr, flush=True)
            return
        self._next_ns = now_ns + _REDRAW_NS
        if not self._started:
            self._started = True
            self._live.start()
        self._live.update(_table(run, now_ns), refresh=True)

    def print_line(self, sentence: str) -> None:
        """Print a sentence that must survive the next redraw."""
        if self._live is not None and self._started:
            self._live.console.print(f"  {sentence}")
        else:
            print(f"  {sentence}", file=sys.stderr, flush=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, err: BaseException | None, tb: TracebackType | None) -> None:
        if self._live is not None and self._started:
            self._live.stop()


def _phase(run: RunState, now_ns: int) -> str:
    if run.stage is not Stage.RUNNING or run.t0_ns is None:
        return run.stage.value
    elapsed_ns = now_ns - run.t0_ns
    if elapsed_ns < run.plan.warmup_ns:
        return f"warm-up {max(elapsed_ns, 0) / 1e9:.0f} of {run.plan.warmup_ns / 1e9:.0f} s"
    elapsed_ns -= run.plan.warmup_ns
    if run.plan.measure_ns is None:
        return f"measure {elapsed_ns / 1e9:.0f} s"
    if elapsed_ns > run.plan.measure_ns:
        return "the senders are behind schedule"
    return f"measure {elapsed_ns / 1e9:.0f} of {run.plan.measure_ns / 1e9:.0f} s"


def _has_reported(run: RunState, role: str) -> bool:
    """Whether a peer of this role has reported; also true when there is none."""
    peers = [peer for peer in run.peers.values() if peer.plan.role == role]
    return not peers or any(peer.statistics is not None and peer.statistics.messages for peer in peers)


def _role_statistics(run: RunState, role: str) -> RoleStatistics:
    reports = [peer.statistics for peer in run.peers.values() if peer.plan.role == role and peer.statistics]
    return RoleStatistics(
        sum(report.rate for report in reports),
        max((report.p99_ns for report in reports if report.p99_ns is not None), default=None),
        sum(report.cpu for report in reports),
    )


def _line(run: RunState, now_ns: int) -> str:
    senders, receivers = _role_statistics(run, "sender"), _role_statistics(run, "receiver")
    p99 = "" if receivers.p99_ns is None else f", p99 {format_ns(receivers.p99_ns)}"
    # Senders report no more when they are done: their last rate is not one of now.
    sending = f"sending {senders.rate:,.0f} msg/s, " if run.stage is Stage.RUNNING else ""
    return f"{_phase(run, now_ns)}: {sending}receiving {receivers.rate:,.0f} msg/s{p99}"


def _table(run: RunState, now_ns: int) -> Table:
    table = Table(title=_phase(run, now_ns), title_justify="left", title_style="bold", box=box.SIMPLE_HEAD)
    table.add_column("")
    for side in ("senders", "receivers"):
        table.add_column(side, justify="right", min_width=18)
    senders, receivers = _role_statistics(run, "sender"), _role_statistics(run, "receiver")
    table.add_row("msg/s", f"{senders.rate:,.0f}", f"{receivers.rate:,.0f}")
    table.add_row("p99", _p99(senders, "late"), _p99(receivers, "response"))
    table.add_row("CPU", f"{senders.cores * 100:.0f} %", f"{receivers.cores * 100:.0f} %")
    return table


def _p99(statistics: RoleStatistics, meaning: str) -> str:
    return "–" if statistics.p99_ns is None else f"{format_ns(statistics.p99_ns)} {meaning}"
