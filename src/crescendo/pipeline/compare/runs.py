"""Which runs make up a side of a comparison, and what did each of them measure?

A side is a run directory, a directory of runs, a pattern that matches runs, or the name of an experiment in a lake.
Several runs are repeats of one experiment. Reads the tables of analysed runs, without Spark. Percentiles of several
runs come from their merged counts. Compares nothing.
"""

import glob
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import pyarrow.compute as pc

from crescendo.model.errors import ConfigError
from crescendo.model.metrics import PERCENTILES
from crescendo.pipeline.columns import BUCKET, KIND, MESSAGES, PHASE, RECEIVER, ROLE, SECOND
from crescendo.pipeline.compare.intervals import Interval
from crescendo.pipeline.lake.lake import Lake
from crescendo.pipeline.latency.group_sums import group_sums
from crescendo.pipeline.latency.quantiles import HIGH, LOW, group_statistics
from crescendo.pipeline.source.moments import timeline_of
from crescendo.pipeline.storage.locations import LAKE_MARKER, Directory
from crescendo.record.manifest import MANIFEST, Manifest, read_manifest
from crescendo.record.summary import TABLES_DIR, Summary, read_summary
from crescendo.record.tables import LATENCY_HISTOGRAM, THROUGHPUT
from crescendo.record.timeline import MEASURE

SEGMENTS = 10
LEAST_SEGMENTS = 4
_SEGMENT = "segment"


@dataclass(frozen=True)
class Repeat:
    """One analysed run."""

    name: str
    manifest: Manifest
    summary: Summary
    histogram: list[Path]
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

    def percentiles(self) -> dict[tuple[str, str], list[float]]:
        """(kind, percentile) -> its value in each segment, if every segment has enough samples for it."""
        start, length, count = self.segments
        if not count or not self.histogram:
            return {}
        segment = pc.divide(pc.field(SECOND) - start, length)
        within = (pc.field(SECOND) >= start) & (pc.field(SECOND) < start + length * count)
        counts = group_sums(self.histogram, [KIND, _SEGMENT, BUCKET], where=within, derived={_SEGMENT: segment})
        found: dict[tuple[str, str], list[float]] = {}
        for row in group_statistics(counts, [KIND, _SEGMENT]).to_pylist():
            for name in PERCENTILES:
                if row[name] is not None:
                    found.setdefault((row[KIND], name), []).append(float(row[name]))
        return {key: values for key, values in found.items() if len(values) == count}


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

    @cached_property
    def pooled(self) -> dict[tuple[str, str], Interval]:
        """(kind, percentile) -> value and interval in the measure phase, from the merged counts of all repeats."""
        files = [file for repeat in self.repeats for file in repeat.histogram]
        if not files:
            return {}
        counts = group_sums(files, [KIND, BUCKET], where=pc.field(PHASE) == MEASURE)
        return {
            (row[KIND], name): Interval(float(row[name]), float(row[name + LOW]), float(row[name + HIGH]))
            for row in group_statistics(counts, [KIND]).to_pylist()
            for name in PERCENTILES
            if row[name] is not None
        }


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
        return [_repeat_from_directory(path)]
    children = sorted(path.iterdir()) if path.is_dir() else [Path(found) for found in sorted(glob.glob(selector))]
    if runs := [child for child in children if (child / MANIFEST).exists()]:
        return [_repeat_from_directory(run) for run in runs]
    known = _experiments(lake)
    if selector not in known:
        there = f"which has {', '.join(known[:10])}" if known else "which has none"
        raise ConfigError(
            f"{selector}: neither a recording, nor a pattern that matches any, nor an experiment in the lake {lake}, "
            f"{there}"
        )
    return _repeats_from_lake(Lake(Directory(lake)), selector)


def _experiments(lake: Path) -> list[str]:
    return Lake(Directory(lake)).experiments() if (lake / LAKE_MARKER).exists() else []


def _repeat_from_directory(run_dir: Path) -> Repeat:
    location = Directory(run_dir)
    histogram, throughput = (
        location.local_files(f"{TABLES_DIR}/{table.name}") for table in (LATENCY_HISTOGRAM, THROUGHPUT)
    )
    return Repeat(str(run_dir), read_manifest(run_dir), read_summary(run_dir), histogram, throughput)


def _repeats_from_lake(lake: Lake, experiment: str) -> list[Repeat]:
    repeats = []
    for run in lake.runs_of(experiment):
        if (entry := lake.entry(experiment, run)) is not None:
            histogram, throughput = (
                lake.location.local_files(lake.folder(table.name, entry)) for table in (LATENCY_HISTOGRAM, THROUGHPUT)
            )
            repeats.append(Repeat(run, entry.manifest, entry.summary, histogram, throughput))
    if not repeats:
        raise ConfigError(f"{experiment}: the lake {lake.location} has no complete run of it; analyse one")
    return repeats
