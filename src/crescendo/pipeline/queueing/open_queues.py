"""How long is the queue of one station at a given load?

M/M/1, M/M/m (Erlang C) and M/G/1 (Pollaczek and Khinchine), in their steady state. A load of 1 or more has none, and is
refused. Times are seconds, rates are per second. Plain arithmetic.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class QueueState:
    """The steady state of a station: means over time and over requests."""

    load: float  # of each server
    waits: float  # the probability that an arrival has to wait
    queue_length: float  # without those in service
    wait_s: float
    response_s: float


def erlang_c(servers: int, offered: float) -> float:
    """The probability that all servers are busy. `offered` is the arrival rate times the mean service time."""
    _check_load(offered / servers)
    blocked = 1.0  # Erlang B, by its recursion, which neither overflows nor cancels
    for count in range(1, servers + 1):
        blocked = offered * blocked / (count + offered * blocked)
    return blocked / (1 - offered / servers * (1 - blocked))


def mmm(arrivals: float, service_s: float, servers: int = 1) -> QueueState:
    """Poisson arrivals, exponential service, `servers` equal servers and one queue."""
    offered = arrivals * service_s
    load = offered / servers
    waits = erlang_c(servers, offered)
    length = waits * load / (1 - load)
    wait_s = length / arrivals if arrivals else 0.0
    return QueueState(load, waits, length, wait_s, wait_s + service_s)


def mm1(arrivals: float, service_s: float) -> QueueState:
    """Poisson arrivals, exponential service, one server."""
    return mmm(arrivals, service_s)


def mg1(arrivals: float, service_s: float, service_variation: float) -> QueueState:
    """Poisson arrivals, one server, any service time. Its variation is deviation / mean: 0 constant, 1 exponential."""
    load = arrivals * service_s
    _check_load(load)
    wait_s = arrivals * service_s**2 * (1 + service_variation**2) / 2 / (1 - load)
    return QueueState(load, load, arrivals * wait_s, wait_s, wait_s + service_s)


def _check_load(load: float) -> None:
    if not 0 <= load < 1:
        raise ValueError(f"a load of {load:.3g} has no steady state: the queue would grow forever; it must be below 1")
