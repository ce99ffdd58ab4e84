"""What follows from counts and times alone, whatever the distributions?

The operational laws (Denning and Buzen, ACM Computing Surveys 10, 1978): utilisation, Little, forced flow, response
time, and the bounds that the bottleneck sets. Times are seconds, rates are per second. Plain arithmetic.
"""

from collections.abc import Mapping
from dataclasses import dataclass


def utilization(throughput: float, service_s: float, servers: int = 1) -> float:
    """The share of time in which a server is busy: X · S / m."""
    return throughput * service_s / servers


def in_system(throughput: float, response_s: float) -> float:
    """Little's law: N = X · R."""
    return throughput * response_s


def forced_flow(system_throughput: float, visits: float) -> float:
    """How often a station is visited per second: X · V."""
    return system_throughput * visits


def interactive_response(clients: int, throughput: float, think_s: float) -> float:
    """The response time of a closed system: R = N / X - Z."""
    return clients / throughput - think_s


@dataclass(frozen=True)
class Bounds:
    """The best that a closed system can do with this many clients."""

    most_throughput: float
    least_response_s: float
    knee: float
    """The number of clients at which the two asymptotes meet; with more of them, they queue."""


@dataclass(frozen=True)
class Demand:
    """What one request asks of a station: seconds of one of its servers. A delay has a server for every request."""

    seconds: float
    servers: int = 1
    is_delay: bool = False


def bottleneck(demands: Mapping[str, Demand]) -> str:
    """The station that saturates first."""
    queues = {name: each.seconds / each.servers for name, each in demands.items() if not each.is_delay}
    if not queues:
        raise ValueError("no station has a queue, so nothing can be the bottleneck")
    return max(queues, key=lambda name: queues[name])


def asymptotic_bounds(demands: Mapping[str, Demand], clients: int, think_s: float = 0.0) -> Bounds:
    """Throughput grows with the clients until the bottleneck is busy; response grows from there."""
    total = sum(each.seconds for each in demands.values())
    limit = demands[bottleneck(demands)]
    slowest = limit.seconds / limit.servers
    throughput = min(1 / slowest, clients / (total + think_s))
    least_s = max(total, interactive_response(clients, 1 / slowest, think_s))
    return Bounds(throughput, least_s, (total + think_s) / slowest)
