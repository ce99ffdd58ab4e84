"""What do a given number of clients get from a chain of stations?

The exact solution of a closed network in product form, with stations of one or several servers and delays; the same
numbers as exact mean value analysis with load-dependent stations. Computed by convolution (Buzen, Communications of the
ACM 16, 1973) in logarithms: the recursion for marginal probabilities loses all digits near saturation, and a
convolution only adds what is positive. Times are seconds. Plain arithmetic.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from crescendo.model.arrays import Floats
from crescendo.model.operational_laws import Demand

MAX_CLIENTS = 10_000


@dataclass(frozen=True)
class StationState:
    """One station with all clients in the network."""

    in_station: float
    residence_s: float  # per request, over all its visits
    utilization: float  # of each server; of a delay, requests in it


@dataclass(frozen=True)
class NetworkState:
    """The steady state with this many clients."""

    clients: int
    throughput: float
    response_s: float
    stations: Mapping[str, StationState]


def closed_network(stations: Mapping[str, Demand], clients: int, think_s: float = 0.0) -> NetworkState:
    """The state with this many clients, each of which thinks between two requests."""
    _check(stations, clients, think_s)
    weights = {name: _log_weights(demand, clients) for name, demand in stations.items()}
    thinking = _log_weights(Demand(think_s, is_delay=True), clients)
    whole = thinking
    for each in weights.values():
        whole = _convolved(whole, each)
    throughput = float(np.exp(whole[clients - 1] - whole[clients]))
    states = {}
    for name, demand in stations.items():
        others = thinking
        for other, each in weights.items():
            if other != name:
                others = _convolved(others, each)
        chances = np.exp(weights[name] + others[::-1] - whole[clients])
        count = float(chances @ np.arange(clients + 1))
        busy = throughput * demand.seconds / (1 if demand.is_delay else demand.servers)
        states[name] = StationState(count, count / throughput, busy)
    return NetworkState(clients, throughput, clients / throughput - think_s, states)


def _log_weights(demand: Demand, clients: int) -> Floats:
    """The logarithm of the weight of 0, 1, … clients at a station: demand^n over the product of its service rates."""
    count = np.arange(1, clients + 1, dtype=np.float64)
    rates = count if demand.is_delay else np.minimum(count, demand.servers)
    with np.errstate(divide="ignore"):  # nobody is at a station without demand
        steps = np.log(demand.seconds) - np.log(rates)
    return np.concatenate([[0.0], np.cumsum(steps)])


def _convolved(one: Floats, other: Floats) -> Floats:
    """The convolution of two sequences of weights, in logarithms."""
    result = np.empty_like(one)
    for total in range(len(one)):
        terms = one[: total + 1] + other[total::-1]
        largest = terms.max()
        result[total] = largest + np.log(np.exp(terms - largest).sum()) if np.isfinite(largest) else -np.inf
    return result


def _check(stations: Mapping[str, Demand], clients: int, think_s: float) -> None:
    if not 1 <= clients <= MAX_CLIENTS:
        raise ValueError(f"clients: {clients} is not between 1 and {MAX_CLIENTS:,}")
    times = [think_s, *(each.seconds for each in stations.values())]
    if min(times) < 0 or not any(times) or any(each.servers < 1 for each in stations.values()):
        raise ValueError("every station needs a time of 0 or more and a server or more, and one time must be above 0")
