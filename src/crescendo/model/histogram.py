"""Which bucket does a latency fall into, and which latency does a bucket stand for?

Log-linear buckets as in HdrHistogram: exact below 512 ns, then 256 per octave, so a bucket is at most 0.4 % wide.
Bucket numbers are integers that preserve the order of the values, negative ones included. Counts of the same bucket
add up across seconds, peers and runs, and percentiles come from the sums. Percentiles are never averaged.
"""

import math
from fractions import Fraction

import numpy as np

from crescendo.model.arrays import Int64s

SUB_BITS = 8
SUB_BUCKETS = 1 << SUB_BITS
_EXACT = 2**53  # up to here a float holds every integer
_BELOW_SUB_BITS = 52 - SUB_BITS
_FIRST_OCTAVE = (1023 + SUB_BITS - 1) << SUB_BITS


def bucket_of(values_ns: Int64s) -> Int64s:
    """The bucket number of each value. ~ maps -1 to 0, so negative values mirror the positive ones exactly."""
    if len(values_ns) and values_ns.min() >= SUB_BUCKETS and values_ns.max() < _EXACT:
        # The common case. The exponent of a float and the bits after it are the bucket number plus a constant.
        return (values_ns.astype(np.float64).view(np.int64) >> _BELOW_SUB_BITS) - _FIRST_OCTAVE
    negative = values_ns < 0
    magnitude = np.where(negative, ~values_ns, values_ns)
    exponent = np.maximum(np.log2(np.maximum(magnitude, 1).astype(np.float64)).astype(np.int64) - SUB_BITS, 0)
    # Where log2 rounds up to the next octave the result is the same: e*256 + 255 is (e-1)*256 + 511.
    bucket = exponent * SUB_BUCKETS + (magnitude >> exponent)
    return np.where(negative, ~bucket, bucket)


def bucket_ceiling(bucket: int) -> int:
    """The largest value that falls into the bucket."""
    if bucket < 0:
        return ~_floor(~bucket)
    return _floor(bucket + 1) - 1


def percentile(buckets: Int64s, counts: Int64s, percent: float) -> int:
    """The value at or below which `percent` of the samples lie: the ceiling of the bucket that holds that rank."""
    order = np.argsort(buckets)
    cumulative = np.cumsum(counts[order])
    if cumulative.size == 0:
        raise ValueError("no percentile without samples")
    rank = rank_of(int(cumulative[-1]), percent)
    return bucket_ceiling(int(buckets[order][np.searchsorted(cumulative, rank)]))


def samples_beyond(count: int, percent: float) -> int:
    """How many samples lie above the rank of a percentile."""
    return count - rank_of(count, percent)


def rank_of(count: int, percent: float) -> int:
    """The rank of a percentile among `count` samples, from 1. Exact: in floats 99.9 % of 1000 is more than 999."""
    return max(math.ceil(Fraction(str(percent)) * count / 100), 1)


def _floor(bucket: int) -> int:
    exponent = max((bucket >> SUB_BITS) - 1, 0)
    return (bucket - exponent * SUB_BUCKETS) << exponent
