"""How does a row of several runs find the constants of its own run?

In a scan of several runs, a column holds the position of the run. What a manifest says (times of phases,
numbers of connections) is then a constant array that is indexed by it; with one run, it is a literal. So there is no
join on the message path, and one run is not a special case for the tables. Knows nothing of what the numbers mean.
"""

from collections.abc import Mapping, Sequence

from pyspark.sql import Column
from pyspark.sql import functions as F

from crescendo.pipeline.columns import RUN_NUMBER

UNKNOWN = -1
"""The value of a number that is not in the manifest."""


def run_keys(runs: int) -> list[str]:
    """The column with the run; one run needs none."""
    return [RUN_NUMBER] if runs > 1 else []


def per_run(values: Sequence[int]) -> Column:
    """The value of a row's run."""
    return F.lit(values[0]).cast("long") if len(set(values)) == 1 else F.get(_constants(values), F.col(RUN_NUMBER))


def lookup(runs: Sequence[Mapping[int, int]], key: Column, absent: Sequence[int] | None = None) -> Column:
    """The value of a number in the mapping of a row's run; otherwise UNKNOWN, or what `absent` says for the run."""
    width = max(max((number for number in known if number >= 0), default=0) for known in runs) + 1
    cells = [known.get(number, UNKNOWN) for known in runs for number in range(width)]
    index = key.cast("int")
    if len(runs) > 1:
        # A number that is too large must not find a cell of the next run.
        index = F.when((index >= 0) & (index < width), F.col(RUN_NUMBER) * width + index)
    other = F.lit(UNKNOWN) if absent is None else per_run(absent)
    return F.coalesce(F.get(_constants(cells).cast("array<int>"), index), other.cast("int"))


def _constants(values: Sequence[int]) -> Column:
    # One string, which Spark folds into a constant array: 32,767 literals, one per connection, would take seconds.
    return F.split(F.lit(",".join(map(str, values))), ",").cast("array<bigint>")
