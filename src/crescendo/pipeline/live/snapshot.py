"""What do live tables report about a run in progress?

Plain values that can be displayed, encoded as JSON, or published anywhere. They do not depend on Spark.
"""

from msgspec import Struct


class LatencySpread(Struct, frozen=True):
    """The latencies of one kind in a period; a percentile with too few samples beyond it is None."""

    count: int
    mean_ns: float
    max_ns: int
    percentiles_ns: dict[str, int | None]


class Period(Struct, frozen=True):
    """One interval of time. Until it is closed, parts that are still open may add messages to it."""

    start_ns: int  # since 1970
    length_ns: int
    closed: bool
    sent: int = 0
    received: int = 0
    settled: int = 0
    latency: dict[str, LatencySpread] = {}  # response, transfer, settle

    def rate(self, messages: int) -> float:
        """Messages per second."""
        return messages * 1e9 / self.length_ns


class LiveTotals(Struct, frozen=True):
    """Totals over all periods, and the messages and parts that were too late for any of them."""

    batch: int = -1
    sent: int = 0
    received: int = 0
    settled: int = 0
    parts: int = 0
    late_parts: int = 0
    late_messages: int = 0


class Snapshot(Struct, frozen=True):
    """What one batch changed."""

    run: str
    periods: list[Period]  # those that changed or were closed, by time
    account: LiveTotals
    watermark_ns: int  # on the wall clock; periods before it are closed
    ended: bool = False  # nothing will follow
