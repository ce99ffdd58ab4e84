"""What did a measurement find, in a form that a program can read?

Every ratio is kept with both of its sides, the ratio of every trial and what was wanted, next to the machine and the
versions of everything that took part. Ours is always above the line: ours ÷ theirs. Measures nothing itself.
"""

import os
import statistics
import subprocess
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from crescendo.run import host_facts

PEERS = ("python-qpid-proton", "pika", "paho-mqtt", "stomp.py", "duckdb", "pgqueuer")
"""Packages of other authors that we are compared with."""


class Comparison(Struct, frozen=True):
    """Ours and theirs in one run. `ratios` has ours ÷ theirs of every trial, in order of size."""

    bench: str
    what: str
    unit: str
    peer: str
    ours: float
    theirs: float
    ratios: list[float]
    wanted: float | None = None  # of ours ÷ theirs: at most this if less is better, else at least
    less_is_better: bool = True

    @property
    def ratio(self) -> float:
        """The median: trials that a neighbour disturbed count no more than others."""
        return statistics.median(self.ratios)

    @property
    def is_ahead(self) -> bool:
        return self.ratio < 1 if self.less_is_better else self.ratio > 1

    @property
    def is_met(self) -> bool | None:
        """Whether it is as wanted; None if nothing was."""
        if self.wanted is None:
            return None
        return self.ratio <= self.wanted if self.less_is_better else self.ratio >= self.wanted


class Figure(Struct, frozen=True):
    """One number that has no other side. `most` or `least` is the largest or the smallest that is wanted, if any."""

    bench: str
    what: str
    unit: str
    value: float
    most: float | None = None
    least: float | None = None

    @property
    def is_met(self) -> bool | None:
        if self.most is not None:
            return self.value <= self.most
        return None if self.least is None else self.value >= self.least


class BenchResults(Struct, frozen=True):
    """What one call of `make bench` found."""

    revision: str
    machine: dict[str, Any]
    versions: dict[str, str]
    load_after: float
    benches: list[str]
    comparisons: list[Comparison]
    figures: list[Figure]


_comparisons: list[Comparison] = []
_figures: list[Figure] = []


def compare(
    bench: str,
    what: str,
    unit: str,
    peer: str,
    pairs: Sequence[tuple[float, float]],
    *,
    wanted: float | None = None,
    less_is_better: bool = True,
) -> Comparison:
    """Keep the trials of one comparison: (ours, theirs) of each."""
    ours, theirs = (statistics.median(side) for side in zip(*pairs, strict=True))
    ratios = sorted(one / other for one, other in pairs)
    found = Comparison(bench, what, unit, peer, ours, theirs, ratios, wanted, less_is_better)
    _comparisons.append(found)
    return found


def keep(
    bench: str, what: str, unit: str, value: float, *, most: float | None = None, least: float | None = None
) -> Figure:
    """Keep one number."""
    found = Figure(bench, what, unit, value, most, least)
    _figures.append(found)
    return found


def collected(benches: Sequence[str], machine: dict[str, Any]) -> BenchResults:
    """Everything that was kept since the start; `machine` is as it was before the first measurement."""
    return BenchResults(
        revision=_revision(),
        machine={name: value for name, value in machine.items() if name != "name"},
        versions=host_facts.versions() | {name: metadata.version(name) for name in PEERS},
        load_after=round(os.getloadavg()[0], 2),
        benches=list(benches),
        comparisons=list(_comparisons),
        figures=list(_figures),
    )


def write_results(path: Path, results: BenchResults) -> None:
    path.write_bytes(msgspec.json.format(msgspec.json.encode(results), indent=1) + b"\n")


def read_results(path: Path) -> BenchResults:
    return msgspec.json.decode(path.read_bytes(), type=BenchResults)


def _revision() -> str:
    done = subprocess.run(
        ["git", "describe", "--always", "--dirty"],
        cwd=Path(__file__).parent, capture_output=True, text=True, check=False,
    )  # fmt: skip
    return done.stdout.strip() or "unknown"
