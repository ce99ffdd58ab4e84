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
from crescendo.record.summary import Latency, Summary

_COLOURS = {Outcome.PASS: "green", Outcome.FAIL: "red", Outcome.INVALID: "yellow"}
EXIT_CODES = {Outcome.PASS: 0, Outcome.FAIL: 1, Outcome.INVALID: 3}


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
    colour = _COLOURS[summary.verdict.outcome]
    verdict, _, rest = verdict_line(summary).partition(" · ")
    console.print(f"[bold {colour}]{verdict}[/bold {colour}] · {rest}")


def verdict_line(summary: Summary) -> str:
    """VERDICT outcome, sustained rate, latency, ledger, generator, clock: the run in one line."""
    total = summary.total
    parts = [f"VERDICT {summary.verdict.outcome.value}"]
    if summary.state != State.SEALED:
        parts.append(f"no headline: the recording is {summary.state}, and the counts cover only what was kept")
    elif total.lost_acknowledged:
        parts.append("no performance headline: acknowledged messages were lost")
    else:
        parts.append(f"{summary.rate.sustained:,.0f} msg/s sustained")
        kind = "response" if summary.latency_of("response") else "transfer"
        parts.append(_latency_part(kind, summary.latency_of(kind)))
    parts.append(f"lost {total.lost:,} dup {total.duplicated:,} reordered {total.reordered:,}")
    ceiling = summary.ceiling_percent
    parts.append("generator not calibrated" if ceiling is None else f"generator at {ceiling:.0f} % of its ceiling")
    parts.append(f"clock bound {format_ns(summary.clock_bound_ns)}")
    return " · ".join(parts)


def _latency_part(kind: str, latency: Latency | None) -> str:
    if latency is None:
        return "no latency measured"
    shown = []
    for name in ("p50", "p99"):
        value = latency.percentiles_ns.get(name)
        shown.append(f"{name} {'withheld' if value is None else format_ns(value)}")
    return f"{' '.join(shown)} {kind}"
