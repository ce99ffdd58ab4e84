"""How does a verb print progress and results?

Progress goes to stderr, results to stdout. On a terminal the progress line is redrawn, in a log it is appended; with
--json only the JSON reaches stdout.
"""

import sys
from types import TracebackType
from typing import Self

from crescendo.model.metrics import format_value
from crescendo.model.units import format_ns
from crescendo.model.verdict import Outcome
from crescendo.record.manifest import State
from crescendo.record.summary import Latency, SliceResult, Summary

_COLOURS = {Outcome.PASS: "green", Outcome.FAIL: "red", Outcome.INVALID: "yellow"}
EXIT_CODES = {Outcome.PASS: 0, Outcome.FAIL: 1, Outcome.INVALID: 3}
_SHOWN = ("p50", "p99")
"""The percentiles of the verdict line."""

_MOST_SLICES = 10
"""More of one scope would hide the verdict."""


class Progress:
    """A line that shows the current step."""

    def __init__(self) -> None:
        from rich.console import Console

        self._console = Console(stderr=True, highlight=False)
        self._status = self._console.status("") if self._console.is_terminal else None
        self._started = False

    def __call__(self, sentence: str) -> None:
        if self._status is None:
            print(f"  {sentence}", file=sys.stderr, flush=True)
            return
        if not self._started:
            self._started = True
            self._status.start()
        self._status.update(sentence)

    def pause(self) -> None:
        """Remove the line."""
        if self._status is not None and self._started:
            self._started = False
            self._status.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, err: BaseException | None, tb: TracebackType | None) -> None:
        self.pause()


def can_ask() -> bool:
    """Whether a person reads and answers."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def confirms(sentence: str) -> bool:
    """Ask before something is deleted."""
    print(f"{sentence}. Continue? [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in {"y", "yes"}


def print_verdict(summary: Summary) -> None:
    """The closing lines: first the checks, then the verdict line."""
    from rich.console import Console

    console = Console(highlight=False, soft_wrap=True)
    for check in summary.verdict.checks:
        colour = _COLOURS[check.outcome]
        value = "not measured" if check.value is None else format_value(check.metric, check.value)
        why = f" [dim]({'; '.join(check.reasons)})[/dim]" if check.reasons else ""
        console.print(
            f"  [{colour}]{check.outcome.value:7}[/{colour}] {check.metric} {value}, wanted {check.bound}{why}"
        )
    for reason in summary.verdict.reasons:
        console.print(f"  [yellow]invalid[/yellow] {reason}")
    for line in slice_lines(summary):
        console.print(f"  {line}", markup=False)
    if intervals := interval_line(summary):
        console.print(f"  [dim]{intervals}[/dim]")
    colour = _COLOURS[summary.verdict.outcome]
    verdict, _, rest = verdict_line(summary).partition(" · ")
    console.print(f"[bold {colour}]{verdict}[/bold {colour}] · {rest}")


def slice_lines(summary: Summary) -> list[str]:
    """A table of every division of the run that says something new; the first slices of each."""
    lines = []
    for scope, slices in summary.divisions.items():
        rows = [(scope, "msg/s", *_SHOWN, "lost"), *(_slice_cells(each) for each in slices[:_MOST_SLICES])]
        widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
        for name, *numbers in rows:
            cells = [f"{cell:>{width}}" for cell, width in zip(numbers, widths[1:], strict=True)]
            lines.append("  ".join([f"{name:{widths[0]}}", *cells]))
        if len(slices) > _MOST_SLICES:
            lines.append(f"… {len(slices) - _MOST_SLICES} more in the report and in summary.json")
    return lines


def _slice_cells(found: SliceResult) -> tuple[str, ...]:
    kind = "response" if found.latency_of("response") else "transfer"
    latency = found.latency_of(kind)
    values = [None if latency is None else latency.percentiles_ns.get(name) for name in _SHOWN]
    if latency is not None:
        shown = ["withheld" if value is None else format_ns(value) for value in values]
    else:
        shown = ["–"] * len(values)
    if latency is not None and kind == "transfer":
        shown[-1] += " transfer"
    if found.shares_queue:
        return found.name, "–", *shown, "–"
    return found.name, f"{found.rate.sustained:,.0f}", *shown, f"{found.ledger.lost:,}"


def interval_line(summary: Summary) -> str:
    """The 95 % intervals of the percentiles that the verdict line shows, or why there is none; empty without any."""
    latency = summary.latency_of("response") or summary.latency_of("transfer")
    shown = []
    if latency is None:
        return ""
    reasons = {latency.no_interval.get(name, "") for name in _SHOWN}
    if len(reasons) == 1 and (only := reasons.pop()):
        return f"no 95 % intervals: {only}"
    for name in _SHOWN:
        if ends := latency.intervals_ns.get(name):
            shown.append(f"{name} {format_ns(ends[0])} to {format_ns(ends[1])}")
        elif reason := latency.no_interval.get(name):
            shown.append(f"{name} none, {reason}")
    return f"95 % intervals: {'; '.join(shown)}" if shown else ""


def verdict_line(summary: Summary) -> str:
    """VERDICT outcome, sustained rate, latency, remarks, ledger, generator, clock: the run in one line."""
    total = summary.total
    parts = [f"VERDICT {summary.outcome_text}"]
    if summary.state != State.SEALED:
        parts.append(f"no headline: the recording is {summary.state}, and the counts cover only what was kept")
    elif total.lost_acknowledged:
        parts.append("no performance headline: acknowledged messages were lost")
    else:
        parts.append(f"{summary.rate.sustained:,.0f} msg/s sustained")
        kind = "response" if summary.latency_of("response") else "transfer"
        parts.append(_latency_part(kind, summary.latency_of(kind)))
    parts += summary.remarks
    parts.append(f"lost {total.lost:,} dup {total.duplicated:,} reordered {total.reordered:,}")
    ceiling = summary.ceiling_percent
    parts.append("generator not calibrated" if ceiling is None else f"generator at {ceiling:.0f} % of its ceiling")
    if summary.clock_bound_ns:
        parts.append(f"clock bound {format_ns(summary.clock_bound_ns)}")
    return " · ".join(parts)


def _latency_part(kind: str, latency: Latency | None) -> str:
    if latency is None:
        return "no latency measured"
    shown = []
    for name in _SHOWN:
        value = latency.percentiles_ns.get(name)
        shown.append(f"{name} {'(too few samples)' if value is None else format_ns(value)}")
    return f"{' '.join(shown)} {kind}"
