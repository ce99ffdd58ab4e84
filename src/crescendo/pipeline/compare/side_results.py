"""What did each run of a side measure, in total or in one slice of it?

Reads the summaries; the rate of a single run also has an interval, from its counts per second. Estimates nothing for a
side as a whole: `changes` does.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from crescendo.model.errors import ConfigError
from crescendo.model.suggestions import listing
from crescendo.pipeline.compare.changes import MeasuredValue
from crescendo.pipeline.compare.intervals import mean_interval
from crescendo.pipeline.compare.runs import Repeat, RunGroup
from crescendo.record.summary import Latency, Ledger, Rate
from crescendo.record.timeline import MEASURE

TOO_SHORT = "the measure phase is too short to show how its rate varies"
OF_SLICE = "the rate of a slice is not counted by second; repeat both sides"


@dataclass(frozen=True)
class RunResults:
    """What was measured in one run. Latencies are those of the measure phase, by kind."""

    repeat: Repeat
    rate: Rate
    latency: Mapping[str, Latency]
    without_own_delay: Mapping[str, Latency]
    total: Ledger
    of_slice: bool = False

    def percentile(self, kind: str, name: str) -> int | None:
        row = self.latency.get(kind)
        return None if row is None else row.percentiles_ns.get(name)


def results_of(side: RunGroup, slice_name: str = "") -> list[RunResults]:
    """Of each run of a side, or of the slice of this name."""
    return [_slice_of(repeat, slice_name) if slice_name else _whole_run(repeat) for repeat in side.repeats]


def _slice_of(repeat: Repeat, name: str) -> RunResults:
    found = next((each for each in repeat.summary.slices if each.name == name), None)
    if found is None:
        known = [each.name for each in repeat.summary.slices]
        there = listing(name, known) if known else "it was analysed by a version without slices: analyse it again"
        raise ConfigError(f"{repeat.name}: no group, destination or protocol is called {name!r}; {there}")
    rows = _measured(found.latency), _measured(found.without_own_delay)
    return RunResults(repeat, found.rate, *rows, found.ledger, of_slice=not found.is_whole)


def _whole_run(repeat: Repeat) -> RunResults:
    summary = repeat.summary
    return RunResults(
        repeat, summary.rate, _measured(summary.latency), _measured(summary.without_own_delay), summary.total
    )


def _measured(rows: Sequence[Latency]) -> dict[str, Latency]:
    return {row.kind: row for row in rows if row.phase == MEASURE}


def measured_rates(side: Sequence[RunResults]) -> list[MeasuredValue] | None:
    """None if a run has no measure phase."""
    if not all(results.rate.duration_ns for results in side):
        return None
    if len(side) > 1:
        return [MeasuredValue(results.rate.sustained) for results in side]
    rate = side[0].rate.sustained
    if side[0].of_slice:
        return [MeasuredValue(rate, no_interval=OF_SLICE)]
    spread = mean_interval(side[0].repeat.rates())
    if spread is None:
        return [MeasuredValue(rate, no_interval=TOO_SHORT)]
    # The segments omit partial seconds at the ends of the phase: centre the interval on the run's own rate.
    half_width = (spread.high - spread.low) / 2
    return [MeasuredValue(rate, max(rate - half_width, 0.0), rate + half_width)]


def measured_percentiles(side: Sequence[RunResults], kind: str, name: str) -> list[MeasuredValue] | None:
    """None if a run did not measure this latency, or withholds this percentile."""
    found = []
    for results in side:
        row = results.latency.get(kind)
        value = None if row is None else row.percentiles_ns.get(name)
        if row is None or value is None:
            return None
        low, high = row.intervals_ns.get(name, (None, None))
        found.append(MeasuredValue(value, low, high, row.no_interval.get(name, "")))
    return found
