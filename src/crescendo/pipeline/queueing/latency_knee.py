"""From which load on does more load mostly mean more waiting?

The knee is the load with the highest power, throughput divided by latency (Kleinrock 1979): before it, throughput grows
faster than latency, after it, latency grows faster. Only loads that were measured can be the knee; one at an end is not
a knee yet, and that is said. Plain arithmetic.
"""

from collections.abc import Sequence
from dataclasses import dataclass

LEAST_LOADS = 4


@dataclass(frozen=True)
class Knee:
    """The load with the highest power, and why it may not be the knee."""

    load: float
    throughput: float
    latency: float
    warning: str = ""


def latency_knee(loads: Sequence[float], throughputs: Sequence[float], latencies: Sequence[float]) -> Knee:
    """The knee of means that were measured at several loads. Raises ValueError for too few of them."""
    points = sorted(zip(loads, throughputs, latencies, strict=True))
    if len(set(loads)) < LEAST_LOADS:
        raise ValueError(f"a knee needs {LEAST_LOADS} or more different loads, and {len(set(loads))} were measured")
    if min(latencies) <= 0 or min(throughputs) <= 0:
        raise ValueError("throughputs and latencies are above 0")
    powers = [throughput / latency for _, throughput, latency in points]
    best = max(range(len(points)), key=lambda at: powers[at])
    warning = ""
    if best == len(points) - 1:
        warning = "the power still rises at the highest load that was measured, so the knee lies beyond it"
    elif best == 0:
        warning = "the power falls from the lowest load that was measured on, so the knee lies at or below it"
    return Knee(*points[best], warning)
