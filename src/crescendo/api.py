"""What can another program do with Crescendo?

`crescendo/__init__.py` lists the public names. This module has those that only adapt arguments; docs/api.md shows how
they are used together.
"""

import math
import os
from collections.abc import Sequence
from pathlib import Path

from crescendo.exporters.registry import exporter_of
from crescendo.model.errors import ConfigError
from crescendo.model.experiment import Experiment
from crescendo.model.experiment_file import load_experiment as read_experiment
from crescendo.pipeline.compare.compare import Comparison
from crescendo.pipeline.compare.compare import compare as compared
from crescendo.pipeline.compare.runs import run_group

StrPath = str | os.PathLike[str]


def load_experiment(path: StrPath, overrides: Sequence[str] = ()) -> Experiment:
    """Read an experiment file. Overrides change keys, e.g. "workload.rate=5000". Raises ConfigError for mistakes."""
    return read_experiment(Path(path), tuple(overrides))


def export(form: str, run: StrPath, out: StrPath) -> list[Path]:
    """Write an analysed run in the format of another tool, one of `crescendo export`, to a new or empty directory.

    Returns the files. Raises ConfigError if the format is unknown or the run lacks what it needs.
    """
    return list(exporter_of(form)(Path(run), Path(out)))


def compare(
    baseline: StrPath,
    run: StrPath,
    *,
    threshold: float = 0.05,
    metrics: Sequence[str] = (),
    lake: StrPath = "runs/lake",
) -> Comparison:
    """Say whether a run is better or worse than a baseline. Both must be analysed.

    Each side is a run, a directory or a pattern of runs, or the name of an experiment in the lake; several runs are
    repeats of one experiment. threshold: a change up to this share counts as no difference; 0.05 is 5 %. metrics: what
    to compare, such as "rate" or "orders.response_p99"; everything by default, which takes more repeats to decide.
    """
    if not 0 <= threshold < math.inf:
        raise ConfigError(f"threshold {threshold}: must be a share of 0 or more, such as 0.05 for 5 %")
    at = Path(lake)
    return compared(run_group(os.fspath(baseline), at), run_group(os.fspath(run), at), threshold, metrics)
