"""Which histogram bucket does a column of latencies fall into?

The arithmetic of `model.histogram.bucket_of` as a Spark expression: generated Java code, no Python on the message path.
The two agree for every 64-bit value.
"""

import math

from pyspark.sql import Column
from pyspark.sql import functions as F

from crescendo.model.histogram import SUB_BITS, SUB_BUCKETS


def bucket_column(value_ns: Column) -> Column:
    """The bucket number, negative for negative values."""
    negative = value_ns < 0
    magnitude = F.when(negative, F.bitwise_not(value_ns)).otherwise(value_ns)
    # Not log2, which recomputes the logarithm of 2 for every row.
    octave = (F.ln(F.greatest(magnitude, F.lit(1)).cast("double")) * (1 / math.log(2))).cast("int")
    exponent = F.greatest(octave - SUB_BITS, F.lit(0))
    # An octave off by one at its edge gives the same bucket: e*256 + 512 is (e+1)*256 + 256.
    bucket = (exponent * SUB_BUCKETS + F.call_function("shiftright", magnitude, exponent)).cast("int")
    return F.when(negative, F.bitwise_not(bucket)).otherwise(bucket)
