"""Between which ranks does the true percentile lie, when the samples depend on each other?

Latencies of one queue rise and fall together, so n of them say less than n independent ones. How much less is estimated
from counts per second: the variance of the counts beyond a percentile, relative to that of independent samples, is the
variance inflation D, and n / D is the number of independent samples. The interval is the exact binomial one for that
number. Too few independent samples give no interval, but a reason. docs/pipeline.md derives it, and
`bench/intervals_bench.py` measures its coverage. Knows ranks and counts, no latencies.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from crescendo.model.arrays import Int64s

Floats = npt.NDArray[np.float64]

CONFIDENCE = 0.95
BLOCKS = 30
"""Consecutive seconds are summed to this many blocks, or fewer in a shorter run."""

LEAST_SECONDS = 10
RELAXATION_TIMES = 50
_PER_RELAXATION_TIME = 3
"""Independent samples of the median per relaxation time, in a queue near its limit."""

_TAIL = 15
"""Independent samples that the run must have for each unit of 1 / (1 - p), judged by the median."""

_OWN_TAIL = 2
"""Independent samples beyond the percentile, judged by the percentile itself."""

_CAUTION, _CAUTION_AT_THE_EDGE = 4, 40
"""At the edge of what is accepted, the variance is added this many times: low estimates are the ones accepted.

The first fades in proportion to the scarcity of samples, the second with its fourth power: runs that are far too short
and were accepted by chance look just long enough, hardly ever much longer.
"""

_SURE, _SURE_OF_LENGTH = 0.05, 0.001
"""Probabilities that the run has fewer independent samples than it is taken to have: in a tail, and in all.

With 0.05 for both, 9 in 100 runs of 42 relaxation times were taken to be longer than 50.
"""

_MAX_CORRELATION = 0.95
_NOT_ZERO = 1e-9


@dataclass(frozen=True)
class RankInterval:
    """The ranks between which the true percentile lies with a confidence of 95 %; from 1."""

    low: int
    high: int


def rank_intervals(samples: Int64s, beyond: Int64s, percents: Sequence[float]) -> list[RankInterval | str]:
    """For each percentile an interval, or why there is none.

    `samples` counts the samples of each second, and `beyond` those above each percentile: one row per percentile, in
    ascending order, one column per second.
    """
    if samples.size < LEAST_SECONDS:
        return [f"fewer than {LEAST_SECONDS} seconds"] * len(percents)
    from scipy.special import betaincinv, chdtri, stdtrit

    total, shares = int(samples.sum()), np.array(percents) / 100
    inflation, freedom = _inflation(samples, beyond)
    # In a longer tail the inflation is higher and its estimate worse: never take less than a lower percentile shows.
    at_most = np.maximum.accumulate(inflation * freedom / chdtri(freedom, 1 - _SURE))
    z, t = stdtrit(1e9, (1 + CONFIDENCE) / 2), stdtrit(freedom, (1 + CONFIDENCE) / 2)
    likely = np.maximum.accumulate(inflation * (t / z) ** 2)
    independent = total / at_most
    relaxation_times = (
        total / (inflation[0] * freedom[0] / chdtri(freedom[0], 1 - _SURE_OF_LENGTH)) / _PER_RELAXATION_TIME
    )
    in_tail = np.minimum(independent[0] / _TAIL, independent / _OWN_TAIL) * (1 - shares)
    scarcity = np.maximum(RELAXATION_TIMES / relaxation_times, 1 / in_tail)
    caution = _CAUTION * scarcity + _CAUTION_AT_THE_EDGE * scarcity**4
    effective = total / likely / (1 + caution)
    below = effective * shares
    low = np.floor(total * betaincinv(below, effective - below + 1, (1 - CONFIDENCE) / 2))
    high = np.ceil(total * betaincinv(below + 1, effective - below, (1 + CONFIDENCE) / 2)) + 1
    return [
        RankInterval(max(int(low[number]), 1), min(int(high[number]), total))
        if scarcity[number] <= 1
        else _reason(relaxation_times)
        for number in range(len(percents))
    ]


def _inflation(samples: Int64s, beyond: Int64s) -> tuple[Floats, Floats]:
    """The variance inflation at each percentile, at least 1, and the degrees of freedom of its estimate."""
    count = min(BLOCKS, samples.size)
    starts = np.linspace(0, samples.size, count + 1).astype(np.int64)[:-1]
    total, share = samples.sum(), beyond.sum(axis=1) / samples.sum()
    # Against the expected count: a second with twice the samples may have twice as many beyond.
    surplus = np.add.reduceat(beyond - share[:, None] * samples, starts, axis=1)
    squares = np.maximum((surplus**2).sum(axis=1), _NOT_ZERO)
    neighbours = (surplus[:, 1:] * surplus[:, :-1]).sum(axis=1) / squares
    # The estimate is low by about (1 + 3 r) / blocks (Kendall 1954), since the mean is estimated too.
    correlation = np.clip(neighbours + (1 + 3 * np.maximum(neighbours, 0)) / count, 0, _MAX_CORRELATION)
    longer = (1 + correlation) / (1 - correlation)
    independent_variance = np.maximum(total * share * (1 - share), _NOT_ZERO)
    inflation = squares * count / (count - 1) / independent_variance * longer
    # A variance that comes from one or two blocks is known as badly as if there were no others.
    kurtosis = count * (surplus**4).sum(axis=1) / squares**2
    freedom = np.minimum(count - 1, 2 * count / np.maximum(kurtosis - 1, _NOT_ZERO)) / longer
    # A percentile whose bucket holds every sample has no variance at all.
    varies = (share > 0) & (share < 1)
    return np.where(varies, np.maximum(inflation, 1.0), 1.0), np.maximum(freedom, 1.0)


def _reason(relaxation_times: float) -> str:
    if relaxation_times < RELAXATION_TIMES:
        return f"the run may be shorter than {RELAXATION_TIMES} relaxation times"
    return "too few independent samples beyond it"
