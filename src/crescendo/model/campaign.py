"""What is a campaign?

An experiment, the factors that are varied, the design that combines their levels, and how often and in which order the
combinations are run. A frozen value: the same campaign and seed give the same runs in the same order. Starts nothing.
"""

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import Annotated, Any

import msgspec
import numpy as np
from msgspec import Meta, Struct

from crescendo.model.designs import Design, DesignKind
from crescendo.model.experiment import Experiment
from crescendo.model.experiment_file import experiment_from
from crescendo.model.factors import Factor
from crescendo.model.metrics import format_value, metric_of
from crescendo.model.name_patterns import NAME_PATTERN
from crescendo.model.redaction import redact_value
from crescendo.model.units import Duration, format_ns

MAX_REPEATS = 1000
SPAN, READING, JITTER, BURST, ERROR = "span.", "reading.", "jitter.", "burst.", "error."
TABLE_STATISTICS = {
    SPAN: ("count", "mean", "p50", "p90", "p99"),
    READING: ("mean", "peak"),
    JITTER: ("max", "min", "mean"),
    BURST: ("negative", "inversions", "messages"),
    ERROR: ("count",),
}
"""Metrics that are read from tables: span.ACTION.p50 of requests, reading.SOURCE/ENTITY/METRIC.mean of inspectors,
jitter.max over all receivers, burst.negative after all outages, both of a group too (jitter.GROUP.max),
error.shed.count of messages that were not accepted."""


class RunOrder(StrEnum):
    """In which order the points of a block are run."""

    RANDOM = "random"
    WRITTEN = "written"


class Percent(float):
    """A share, written as a percentage such as `5%`."""

    @classmethod
    def parse(cls, text: object) -> "Percent":
        match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*%\s*", text) if isinstance(text, str) else None
        if match is None or not 0 < float(match[1]) <= 1000:
            raise ValueError(f"{text!r} is not a percentage such as 5%")
        return cls(float(match[1]) / 100)

    def __str__(self) -> str:
        return f"{100 * self:g}%"


class Until(Struct, frozen=True, forbid_unknown_fields=True):
    """Points are repeated until the 95 % interval of the mean of a metric is narrower than this share of the mean."""

    metric: str
    narrower: Percent
    repeats: Annotated[int, Meta(ge=2, le=MAX_REPEATS)] = 10  # at most


class CampaignSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """How a campaign is carried out: everything in its file except the experiment and the factors."""

    name: Annotated[str, Meta(pattern=NAME_PATTERN)]
    design: Design = Design()
    repeat: Annotated[int, Meta(ge=1, le=MAX_REPEATS)] = 1
    order: RunOrder = RunOrder.RANDOM
    seed: Annotated[int, Meta(ge=0, le=2**31)] = 1
    retries: Annotated[int, Meta(ge=0, le=100)] = 2
    """How often a run that is invalid is run again."""

    budget: Duration | None = None
    until: Until | None = None
    metrics: list[str] = []


@dataclass(frozen=True)
class Point:
    """One combination of levels: a row of the design, as numbers, as values, and as keys of the experiment."""

    number: int
    row: tuple[float, ...]
    levels: tuple[Any, ...]
    settings: Mapping[str, Any]


@dataclass(frozen=True)
class Campaign:
    """One campaign. Raises ValueError if its parts do not fit each other."""

    document: Mapping[str, Any]
    """The experiment, as it is written in a file."""

    factors: tuple[Factor, ...]
    settings: CampaignSettings

    def __post_init__(self) -> None:
        self.settings.design.check(self.factors)
        for metric in (*self.settings.metrics, *([self.settings.until.metric] if self.settings.until else [])):
            check_campaign_metric(metric)
        if self.settings.until is not None and self.settings.until.repeats < self.settings.repeat:
            raise ValueError("until.repeats: must be at least repeat")

    @property
    def name(self) -> str:
        return self.settings.name

    @cached_property
    def points(self) -> tuple[Point, ...]:
        matrix = self.settings.design.matrix(self.factors, self.settings.seed)
        return tuple(self._point(number, tuple(map(float, row))) for number, row in enumerate(matrix))

    def _point(self, number: int, row: tuple[float, ...]) -> Point:
        levels, settings = [], {}
        for factor, share in zip(self.factors, row, strict=True):
            if self.settings.design.kind is DesignKind.LATIN_HYPERCUBE and factor.key is not None:
                level: Any = _within(factor, share)
                settings[factor.key] = level
            else:
                level = factor.levels[int(share)]
                settings.update(factor.at(int(share)))
            levels.append(level)
        return Point(number, row, tuple(levels), settings)

    def block(self, number: int) -> list[int]:
        """The points in the order of one block, which has each of them once."""
        count = len(self.points)
        if self.settings.order is RunOrder.WRITTEN:
            return list(range(count))
        return [int(point) for point in np.random.default_rng((self.settings.seed, number)).permutation(count)]

    def experiment(self, point: int, repeat: int = 0) -> Experiment:
        """The experiment of one run. Its name has the number of the point; repeats draw other arrivals.

        Raises ConfigError if the levels do not fit the experiment.
        """
        chosen = self.points[point]
        described = ", ".join(
            f"{factor.name}={level}" for factor, level in zip(self.factors, chosen.levels, strict=True)
        )
        built = experiment_from(
            dict(self.document), (), system_first(chosen.settings), source=described, default_name=self.name
        )
        return msgspec.structs.replace(built, name=self.run_name(point), seed=built.seed + repeat)

    def run_name(self, point: int) -> str:
        """The name of the experiment of a point, which its repeats share."""
        return f"{self.name}.{point + 1:03d}"

    @cached_property
    def fingerprint(self) -> str:
        """Changes when the runs of the campaign would change, and not with its budget or its secrets."""
        settings = msgspec.structs.replace(self.settings, budget=None, retries=0, until=None, metrics=[])
        parts = [
            redact_value(dict(self.document)),
            [[factor.name, redact_value([dict(each) for each in factor.settings])] for factor in self.factors],
            msgspec.to_builtins(msgspec.structs.replace(settings, repeat=1), enc_hook=str),
        ]
        return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()[:16]


def check_campaign_metric(name: str) -> None:
    """Raises ValueError if there is no such metric."""
    for prefix, statistics in TABLE_STATISTICS.items():
        if name.startswith(prefix):
            if name.rpartition(".")[2] not in statistics:
                raise ValueError(f"metric {name}: it must end with one of {', '.join(statistics)}")
            return
    metric_of(name)


def system_first(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The keys in an order in which none undoes another: a new system replaces what the file says about its own."""
    return dict(sorted(settings.items(), key=lambda item: item[0] not in {"system", "system.kind", "system.url"}))


def default_metrics(experiment: Experiment) -> list[str]:
    """What is analysed when the file names no metrics."""
    bounded = experiment.workload and all(group.rate for group in experiment.workload if group.senders)
    return ["rate", "response_p99" if bounded else "transfer_p99"]


def _within(factor: Factor, share: float) -> Any:
    low, high = min(factor.levels), max(factor.levels)
    value = low + share * (high - low)
    return round(value) if all(isinstance(level, int) for level in factor.levels) else float(f"{value:.6g}")


def describe_levels(factors: Sequence[Factor], point: Point) -> str:
    """A point in a few words, without secrets."""
    shown = redact_value({factor.name: level for factor, level in zip(factors, point.levels, strict=True)})
    return ", ".join(f"{name}={level}" for name, level in shown.items())


def format_metric(metric: str, value: float) -> str:
    """A value of a metric of campaigns, as people read it."""
    if metric.startswith((SPAN, JITTER)) and not metric.endswith(".count"):
        return format_ns(value)
    return f"{value:,.6g}" if metric.startswith(tuple(TABLE_STATISTICS)) else format_value(metric, value)
