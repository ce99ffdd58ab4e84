"""In which second and phase was a message, and does it count?

Gives the second and the phase of `record.timeline` as column expressions over integers. Works on one row at a time and
aggregates nothing.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from crescendo.pipeline.columns import ATTEMPT, FLAGS
from crescendo.pipeline.source.per_run import per_run, run_keys
from crescendo.record.manifest import Manifest
from crescendo.record.schema import Flag
from crescendo.record.timeline import OUTSIDE, SECOND_NS, RunTimeline

_NEVER_NS = -(2**62)
"""Where a phase is that a run does not have: it starts and ends here, and no message is in it."""


class MomentColumns(ABC):
    """The second and the phase of each row as columns; in several runs, by the timeline of the row's run."""

    @property
    @abstractmethod
    def runs(self) -> Sequence[RunTimeline]:
        """The timeline of each run."""

    @property
    def run_keys(self) -> list[str]:
        return run_keys(len(self.runs))

    @property
    def has_measure(self) -> bool:
        return any(run.measure for run in self.runs)

    @property
    def measure_start_ns(self) -> Column:
        return per_run([run.measure.start_ns if run.measure else _NEVER_NS for run in self.runs])

    @property
    def measure_end_ns(self) -> Column:
        return per_run([run.measure.end_ns if run.measure else _NEVER_NS for run in self.runs])

    def second_of(self, t_ns: Column) -> Column:
        elapsed_ns = t_ns - per_run([run.origin_ns for run in self.runs])
        # Division truncates towards zero; a message before the origin belongs to second -1, not to 0.
        shifted_ns = F.when(elapsed_ns < 0, elapsed_ns - (SECOND_NS - 1)).otherwise(elapsed_ns)
        return F.call_function("div", shifted_ns, F.lit(SECOND_NS))

    def phase_of(self, t_ns: Column) -> Column:
        """The position of the phase; the number of phases stands for none of them."""
        position = per_run([len(run.phases) for run in self.runs]).cast("int")
        for index in reversed(range(self._most_phases)):
            phases = [run.phases[index] if index < len(run.phases) else None for run in self.runs]
            start_ns = per_run([phase.start_ns if phase else _NEVER_NS for phase in phases])
            end_ns = per_run([phase.end_ns if phase else _NEVER_NS for phase in phases])
            position = F.when(within(t_ns, start_ns, end_ns), F.lit(index)).otherwise(position)
        return position

    def phase_name(self, position: Column) -> Column:
        names = [[*(phase.name for phase in run.phases), OUTSIDE] for run in self.runs]
        if all(each == names[0] for each in names):
            return F.get(_strings(names[0]), position)
        width = self._most_phases + 1
        padded = [name for each in names for name in (*each, *[OUTSIDE] * (width - len(each)))]
        first = per_run([number * width for number in range(len(names))]).cast("int")
        return F.get(_strings(padded), first + position)

    def measured(self, t_ns: Column) -> Column:
        return within(t_ns, self.measure_start_ns, self.measure_end_ns) if self.has_measure else F.lit(False)

    @property
    def _most_phases(self) -> int:
        return max(len(run.phases) for run in self.runs)


@dataclass(frozen=True)
class TimelinesOfRuns(MomentColumns):
    """The phases of several runs."""

    timelines: tuple[RunTimeline, ...]

    @property
    def runs(self) -> Sequence[RunTimeline]:
        return self.timelines


@dataclass(frozen=True)
class Timeline(RunTimeline, MomentColumns):
    """The phases of a run, with the second and the phase of each row as columns."""

    @property
    def runs(self) -> Sequence[RunTimeline]:
        return (self,)


def timeline_of(manifest: Manifest) -> Timeline:
    return Timeline.of(manifest.phases, manifest.started_ns)


def within(t_ns: Column, start_ns: Column, end_ns: Column) -> Column:
    return (t_ns >= start_ns) & (t_ns < end_ns)


def flagged(flag: Flag) -> Column:
    return F.col(FLAGS).bitwiseAND(F.lit(int(flag))) != 0


def deliveries(received: DataFrame) -> DataFrame:
    """The rows that are messages of this run: neither corrupt nor from another run."""
    return received.where(~flagged(Flag.CORRUPT | Flag.STRAY))


def first_attempts(sent: DataFrame) -> DataFrame:
    """One row per message, however often it was sent."""
    return sent.where(F.col(ATTEMPT) == 1)


def _strings(names: Sequence[str]) -> Column:
    return F.array(*(F.lit(name) for name in names))
