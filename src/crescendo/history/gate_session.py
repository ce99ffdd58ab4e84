"""Judges runs that a person names: reads them, their baseline and the series since then.

What the judgement is made of is in `regression_gate.py`, which reads nothing.
"""

from collections.abc import Sequence
from pathlib import Path

from crescendo.history.baseline_file import read_baselines
from crescendo.history.regression_gate import GateResult, judge_runs
from crescendo.history.run_history import earlier_runs, named_runs


def judge_named_runs(
    selectors: Sequence[str], *, history: str | Path, lake: Path, baselines: Path, threshold: float
) -> GateResult:
    """Judge these runs by the metrics of their baseline. threshold: a fraction, 0.05 is 5 %."""
    known = read_baselines(baselines)
    fingerprint = named_runs(selectors, lake, ())[0].fingerprint
    baseline = known.baselines.get(fingerprint)
    metrics = [] if baseline is None else baseline.metrics
    runs = named_runs(selectors, lake, metrics)
    return judge_runs(runs, earlier_runs(history, metrics, fingerprint), known, threshold)
