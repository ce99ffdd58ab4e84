"""Which points make up the lines of a chart?

Pure arithmetic on counts. Percentiles come from merged counts and are withheld (NaN) if fewer than ten samples lie
beyond them, exactly as in the tables. Times are in seconds, the unit of the axes.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from crescendo.model.histogram import bucket_ceiling
from crescendo.model.metrics import SAMPLES_BEYOND
from crescendo.report.data.chart_tables import HistogramCounts, TimeBins

Floats = npt.NDArray[np.float64]
Int64s = npt.NDArray[np.int64]

NS_PER_S = 1e9
SPECTRUM_POINTS = 240
HISTOGRAM_BARS = 90
_NARROWEST_BAR = 1.012  # three buckets: bars narrower than buckets would look like a comb


@dataclass(frozen=True)
class LatencyLines:
    """Latency in each bin; NaN where it is withheld."""

    p50_s: Floats
    p99_s: Floats
    max_s: Floats


@dataclass(frozen=True)
class Spectrum:
    """Latency against nines: 0 is 0 %, 1 is 90 %, 2 is 99 %, 3 is 99.9 %."""

    nines: Floats
    percent: Floats
    latency_s: Floats


@dataclass(frozen=True)
class Density:
    """The share of samples between each edge and the next; the last share is zero and closes the outline."""

    edges_s: Floats
    share: Floats
    below_scale: int  # samples at or below zero, which a logarithmic axis cannot show


def bin_centres(time_bins: TimeBins) -> Floats:
    """The middle of each bin, in seconds from the start of the first phase."""
    halves = np.arange(time_bins.bins, dtype=np.float64) + 0.5
    return time_bins.first_second + halves * time_bins.bin_seconds


def rates(messages: Int64s, time_bins: TimeBins) -> Floats:
    return messages / time_bins.bin_seconds


def latency_lines(counts: HistogramCounts, time_bins: TimeBins) -> LatencyLines:
    maximum = np.full(time_bins.bins, np.nan)
    np.fmax.at(maximum, counts.bin, counts.max_ns / NS_PER_S)
    return LatencyLines(_percentiles(counts, time_bins.bins, 0.5), _percentiles(counts, time_bins.bins, 0.99), maximum)


def spectrum(counts: HistogramCounts) -> Spectrum:
    """Ends where fewer than ten samples are left; empty with fewer than twenty samples."""
    total = int(counts.count.sum())
    if total < 2 * SAMPLES_BEYOND:
        nothing = np.zeros(0)
        return Spectrum(nothing, nothing, nothing)
    nines = np.linspace(0, np.log10(total / SAMPLES_BEYOND), SPECTRUM_POINTS)
    share = 1 - 10.0**-nines
    # The last point is the highest rank that is not withheld, despite rounding.
    rank = np.clip(np.ceil(share * total), 1, total - SAMPLES_BEYOND).astype(np.int64)
    index = np.searchsorted(np.cumsum(counts.count), rank)
    latency_ns = np.minimum(_ceilings(counts.bucket)[index], counts.max_ns.max())
    return Spectrum(nines, share * 100, latency_ns / NS_PER_S)


def densities(measured: dict[str, HistogramCounts]) -> dict[str, Density]:
    """One outline per kind, all with the same edges: shares of bars of different widths are not comparable."""
    ceilings_s = {kind: _ceilings(counts.bucket) / NS_PER_S for kind, counts in measured.items()}
    drawn = np.concatenate([np.zeros(0), *(values[values > 0] for values in ceilings_s.values())])
    if not drawn.size:
        return {kind: Density(drawn, drawn, int(counts.count.sum())) for kind, counts in measured.items()}
    low, high = float(drawn.min()), float(drawn.max())
    step = np.log(max((high / low) ** (1 / HISTOGRAM_BARS), _NARROWEST_BAR))
    bars = int(np.log(high / low) / step + 1e-9) + 1
    edges_s = low * np.exp(step * np.arange(-1, bars + 1))
    return {kind: _density(measured[kind], values, edges_s, float(step)) for kind, values in ceilings_s.items()}


def _density(counts: HistogramCounts, ceilings_s: Floats, edges_s: Floats, step: float) -> Density:
    drawn = ceilings_s > 0
    # The epsilon keeps a value on an edge in the bar that starts there.
    index = (np.log(ceilings_s[drawn] / edges_s[0]) / step + 1e-9).astype(np.int64)
    shares = np.bincount(index, weights=counts.count[drawn], minlength=edges_s.size) / counts.count.sum()
    return Density(edges_s, shares, int(counts.count[~drawn].sum()))


def _percentiles(counts: HistogramCounts, bins: int, share: float) -> Floats:
    """One percentile of every bin at once, by looking up ranks in the cumulative count over all bins."""
    totals = np.bincount(counts.bin, weights=counts.count, minlength=bins).astype(np.int64)
    rank = np.maximum(np.ceil(share * totals), 1).astype(np.int64)
    enough = totals - rank >= SAMPLES_BEYOND
    before = np.cumsum(totals) - totals
    index = np.searchsorted(np.cumsum(counts.count), (before + rank)[enough])
    maximum = np.full(bins, np.iinfo(np.int64).min)
    np.maximum.at(maximum, counts.bin, counts.max_ns)
    values = np.full(bins, np.nan)
    values[enough] = np.minimum(_ceilings(counts.bucket)[index], maximum[enough]) / NS_PER_S
    return values


def _ceilings(buckets: Int64s) -> Int64s:
    distinct, back = np.unique(buckets, return_inverse=True)
    return np.array([bucket_ceiling(int(bucket)) for bucket in distinct], np.int64)[back]
