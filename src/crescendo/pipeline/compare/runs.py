"""Which runs make up a side of a comparison, and what did each of them measure?

A side is a run directory, a directory of runs, a pattern that matches runs, or the name of an experiment in a lake.
Several runs are repeats of one experiment; of a campaign, those that it counted. Reads the summaries of analysed runs
and their counts per second, without Spark. Compares nothing.
"""

import glob
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import pyarrow.compute as pc

from crescendo.model.errors import ConfigError
from crescendo.pipeline.columns import MESSAGES, RECEIVER, ROLE, SECOND
from crescendo.pipeline.lake.lake import COMPACTED, Lake
from crescendo.pipeline.latency.group_sums import group_sums
from crescendo.pipeline.source.moments import timeline_of
from crescendo.pipeline.storage.locations import LAKE_MARKER, Directory
from crescendo.record.campaign_journal import CAMPAIGN_FILE, read_journal
from crescendo.record.manifest import MANIFEST, Manifest, read_manifest
from crescendo.record.run_links import is_recording, target_of
from crescendo.record.summary import TABLES_DIR, Summary, read_summary
from crescendo.record.tables import THROUGHPUT

SEGMENTS = 10
LEAST_SEGMENTS = 4
_SEGMENT = "segment"


@dataclass(frozen=True)
class Repeat:
    """One analysed run."""

    name: str
    manifest: Manifest
    summary: Summary
    throughput: list[Path]

    @cached_property
    def segments(self) -> tuple[int, int, int]:
        """The first whole second of the measure phase, the length of a segment in seconds, the number of segments."""
        seconds = timeline_of(self.manifest).whole_seconds
        count = min(SEGMENTS, len(seconds))
        if count < LEAST_SEGMENTS:
            return seconds.start, 0, 0
        return seconds.start, len(seconds) // count, count

    def rates(self) -> list[float]:
        """Messages per second in each segment; each message counts once, whatever its fan-out."""
        start, length, count = self.segments
        if not count:
            return []
        segment = pc.divide(pc.field(SECOND) - start, length)
        within = (pc.field(SECOND) >= start) & (pc.field(SECOND) < start + length * count)
        mine = within & (pc.field(ROLE) == RECEIVER)
        sums = group_sums(self.throughput, [_SEGMENT], {MESSAGES: "sum"}, where=mine, derived={_SEGMENT: segment})
        delivered = np.zeros(count)
        delivered[sums[_SEGMENT].to_numpy()] = sums[MESSAGES].to_numpy()
        total = self.summary.total
        fan_out = total.owed / total.sent if total.owed else 1.0
        return [float(value) for value in delivered / length / fan_out]


@dataclass(frozen=True)
class RunGroup:
    """Baseline or run: one run, or repeats of one experiment."""

    selector: str
    repeats: tuple[Repeat, ...]

    @property
    def experiment(self) -> Mapping[str, object]:
        return self.repeats[0].manifest.experiment

    @property
    def clock_bound_ns(self) -> int:
        return max(repeat.summary.clock_bound_ns for repeat in self.repeats)


def run_group(selector: str, lake: Path) -> RunGroup:
    """The runs that the selector names. Refuses a selector without runs, and repeats of different experiments."""
    repeats = _repeats(selector, lake)
    experiments = sorted({str(repeat.manifest.experiment.get("name")) for repeat in repeats})
    if len(experiments) > 1:
        raise ConfigError(
            f"{selector}: these are runs of different experiments ({', '.join(experiments)}); select runs of one"
        )
    return RunGroup(selector, tuple(repeats))


def _repeats(selector: str, lake: Path) -> list[Repeat]:
    path = Path(selector)
    if (path / MANIFEST).exists():
        return [_repeat_from_directory(target_of(path))]
    children = sorted(path.iterdir()) if path.is_dir() else [Path(found) for found in sorted(glob.glob(selector))]
    if runs := [child for child in children if is_recording(child)]:
        if not (counted := _counted(runs)):
            raise ConfigError(f"{selector}: the campaign has counted none of these runs; continue it")
        return [_repeat_from_directory(run) for run in counted]
    known = _experiments(lake)
    if selector not in known:
        there = f"which has {', '.join(known[:10])}" if known else "which has none"
        raise ConfigError(
            f"{selector}: neither a recording, nor a pattern that matches any, nor an experiment in the lake {lake}, "
            f"{there}"
        )
    return _repeats_from_lake(Lake(Directory(lake)), selector)


def _counted(runs: list[Path]) -> list[Path]:
    """Without the runs that a campaign did not count: interrupted ones have no verdict, invalid ones prove nothing."""
    counted = {
        parent: {attempt.run for attempt in read_journal(parent).counted}
        for parent in {run.parent for run in runs}
        if (parent / CAMPAIGN_FILE).is_file()
    }
    return [run for run in runs if run.parent not in counted or run.name in counted[run.parent]]


def _experiments(lake: Path) -> list[str]:
    if not (lake / LAKE_MARKER).exists():
        return []
    if Directory(lake).read(LAKE_MARKER) == COMPACTED:
        raise ConfigError(f"{lake}: is a compacted copy, without the runs' own tables; name the lake it was made of")
    return Lake(Directory(lake)).experiments()


def _repeat_from_directory(run_dir: Path) -> Repeat:
    location = Directory(run_dir)
    throughput = location.local_files(f"{TABLES_DIR}/{THROUGHPUT.name}")
    return Repeat(str(run_dir), read_manifest(run_dir), read_summary(run_dir), throughput)


def _repeats_from_lake(lake: Lake, experiment: str) -> list[Repeat]:
    repeats = []
    for run in lake.runs_of(experiment):
        if (entry := lake.entry(experiment, run)) is not None:
            throughput = lake.location.local_files(lake.folder(THROUGHPUT.name, entry))
            repeats.append(Repeat(run, entry.manifest, entry.summary, throughput))
    if not repeats:
        raise ConfigError(f"{experiment}: the lake {lake.location} has no complete run of it; analyse one")
    return repeats
