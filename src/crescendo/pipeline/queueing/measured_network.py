"""What do queueing models say about a system whose tiers were measured?

Reads the requests of a run with clients: how many clients, how long a request took, and how long in each tier. Tiers
become stations: the database and the workers of the brokers have servers, everything else is a delay, and the times
that a request only waited are left out, because waiting is what a model predicts. The rest of a client's cycle is its
think time. Demands of a model come from the run with the fewest clients, where waiting is shortest.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from crescendo.model.errors import ConfigError
from crescendo.model.experiment import Experiment
from crescendo.model.histogram import bucket_ceiling
from crescendo.model.mlmq_tiers import DATABASE, WAITING_TIERS, servers_of, station_of
from crescendo.model.operational_laws import (
    Bounds,
    Demand,
    asymptotic_bounds,
    bottleneck,
    in_system,
    utilization,
)
from crescendo.pipeline.queueing.closed_network import MAX_CLIENTS, NetworkState, closed_network
from crescendo.pipeline.queueing.open_queues import mg1, mmm
from crescendo.record.manifest import read_manifest
from crescendo.record.recorded_experiment import experiment_of
from crescendo.record.summary import read_summary
from crescendo.record.table_reader import rows
from crescendo.record.tables import SPAN_HISTOGRAM, SPANS
from crescendo.record.timeline import MEASURE


@dataclass(frozen=True)
class MeasuredLoad:
    """One run with clients: what they got, and where their requests were."""

    run: str
    clients: int
    throughput: float
    response_s: float
    waited_s: float  # per request, for a worker or a connection
    stations: Mapping[str, Demand]
    variation: Mapping[str, float]  # deviation / mean of the time in a station

    @property
    def think_s(self) -> float:
        """What remains of a client's cycle: its pauses, and the messages that it waited for."""
        return max(self.clients / self.throughput - self.response_s, 0.0)


@dataclass(frozen=True)
class Laws:
    """What the operational laws say about one run."""

    in_system: float  # Little: requests under way
    utilization: dict[str, float]
    bottleneck: str
    bounds: Bounds


@dataclass(frozen=True)
class Prediction:
    """One measured run next to what the model says for its number of clients."""

    measured: MeasuredLoad
    predicted: NetworkState
    laws: Laws
    open_wait_s: float | None  # of M/M/m at the database; None beyond its capacity
    open_wait_general_s: float | None  # of M/G/1; None with several servers

    @property
    def throughput_error(self) -> float:
        return self.predicted.throughput / self.measured.throughput - 1

    @property
    def response_error(self) -> float:
        return self.predicted.response_s / self.measured.response_s - 1


def measured_load(run_dir: Path) -> MeasuredLoad:
    """Read one run. Raises ConfigError if it has no clients whose requests were recorded by tier."""
    manifest, summary = read_manifest(run_dir), read_summary(run_dir)
    experiment = experiment_of(manifest)
    if not experiment.clients:
        raise ConfigError(f"{run_dir}: a model needs clients in a closed loop, and this run has none")
    if any(group.group_size for group in experiment.clients):
        raise ConfigError(f"{run_dir}: its clients join one after the other; a model needs a constant number of them")
    found = [row for row in rows(run_dir, SPANS) if row.phase == MEASURE and row.outcome is None]
    actions = {row.action for row in found}
    tiers = [row for row in found if row.action.rpartition("/")[0] in actions]
    requests = {row.action.rpartition("/")[0] for row in tiers}
    whole = [row for row in found if row.action in requests]
    if not whole:
        raise ConfigError(f"{run_dir}: its requests have no tiers; run it with clients.breakup=true")
    count = sum(row.statistics.count for row in whole)
    seconds = summary.rate.duration_ns / 1e9
    spent: dict[str, float] = {}
    waited = 0.0
    for row in tiers:
        tier = row.action.rpartition("/")[2]
        if tier in WAITING_TIERS:
            waited += row.total_ns / 1e9
        elif (station := station_of(tier)) is not None:
            spent[station] = spent.get(station, 0.0) + row.total_ns / 1e9
    if DATABASE not in spent:
        raise ConfigError(f"{run_dir}: its requests never reached the database, so there is nothing to model")
    stations = {name: _station(experiment, name, time_s / count) for name, time_s in spent.items()}
    return MeasuredLoad(
        run_dir.name,
        sum(group.count for group in experiment.clients),
        count / seconds,
        sum(row.total_ns for row in whole) / 1e9 / count,
        waited / count,
        stations,
        {DATABASE: _variation(run_dir, requests)},
    )


def _station(experiment: Experiment, name: str, seconds: float) -> Demand:
    servers = servers_of(experiment, name)
    return Demand(seconds, is_delay=True) if servers is None else Demand(seconds, servers=servers)


def _variation(run_dir: Path, requests: set[str]) -> float:
    """Deviation divided by mean of the time in the database, from its histogram."""
    wanted = {f"{request}/{DATABASE}" for request in requests}
    counts: dict[int, int] = {}
    for row in rows(run_dir, SPAN_HISTOGRAM):
        if row.action in wanted and row.phase == MEASURE:
            counts[row.bucket] = counts.get(row.bucket, 0) + row.count
    total = sum(counts.values())
    if not total:
        return 1.0
    values = {bucket: float(bucket_ceiling(bucket)) for bucket in counts}
    mean = sum(values[bucket] * count for bucket, count in counts.items()) / total
    spread = sum((values[bucket] - mean) ** 2 * count for bucket, count in counts.items()) / total
    return float(spread**0.5 / mean) if mean > 0 else 1.0


def changed(stations: Mapping[str, Demand], changes: Sequence[str]) -> dict[str, Demand]:
    """Stations with `station.servers=N` or `station.seconds=S` applied. Raises ConfigError with the cure."""
    result = dict(stations)
    for change in changes:
        key, _, text = change.partition("=")
        name, _, field = key.partition(".")
        if name not in result or field not in {"servers", "seconds"} or (field == "servers" and result[name].is_delay):
            queues = ", ".join(f"{each}.servers" for each, demand in result.items() if not demand.is_delay)
            raise ConfigError(f"{change}: not a part of this model; change {queues}, or the seconds of a station")
        try:
            value = float(text)
            valid = value > 0 and (field == "seconds" or value.is_integer())
        except ValueError:
            valid = False
        if not valid:
            raise ConfigError(f"{change}: write a number above 0, such as {key}=16")
        demand = result[name]
        result[name] = replace(demand, servers=int(value)) if field == "servers" else replace(demand, seconds=value)
    return result


def predictions(loads: Sequence[MeasuredLoad], changes: Sequence[str] = ()) -> list[Prediction]:
    """The model next to every run, by the number of clients. Its demands are those of the run with the fewest."""
    ordered = sorted(loads, key=lambda each: each.clients)
    base = ordered[0]
    stations = changed(base.stations, changes)
    return [_prediction(each, stations, base) for each in ordered]


def _prediction(load: MeasuredLoad, stations: Mapping[str, Demand], base: MeasuredLoad) -> Prediction:
    if load.clients > MAX_CLIENTS:
        raise ConfigError(f"{load.run}: a model has at most {MAX_CLIENTS:,} clients, and this run has {load.clients:,}")
    used = {
        name: utilization(load.throughput, demand.seconds, demand.servers)
        for name, demand in load.stations.items()
        if not demand.is_delay
    }
    laws = Laws(
        in_system(load.throughput, load.response_s), used, bottleneck(load.stations),
        asymptotic_bounds(load.stations, load.clients, load.think_s),
    )  # fmt: skip
    database = stations[DATABASE]
    wait_s = general_s = None
    if load.throughput * database.seconds < database.servers:
        wait_s = mmm(load.throughput, database.seconds, database.servers).wait_s
        if database.servers == 1:
            general_s = mg1(load.throughput, database.seconds, base.variation[DATABASE]).wait_s
    return Prediction(load, closed_network(stations, load.clients, base.think_s), laws, wait_s, general_s)
