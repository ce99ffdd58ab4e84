"""What does a federation cost, compared with one broker?

Every kind of link between brokers runs in one network, `experiments/federation/topologies/every-link.yml`. The same
messages go through one broker and over each link: messages per second without a pause, then the median latency at a
fixed rate. The ratio is to the slower of the two brokers alone.
"""

import math
import tempfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from bench.engines import NO_LIMIT, through
from crescendo.load.assignment import Quota
from crescendo.model.payload import PayloadSize
from crescendo.model.workload import Group
from crescendo.record.schema import RECEIVED
from crescendo.systems.instance import RunningInstance
from crescendo.topology.address_ways import ways_of
from crescendo.topology.graph import Graph, queue_address
from crescendo.topology.local_network import local_network, running_network
from crescendo.topology.topology_file import load_topology

TOPOLOGY = Path(__file__).parents[1] / "experiments/federation/topologies/every-link.yml"
SIZE = 256
MESSAGES, PACED, RATE = 4_000, 400, 200
WARM_UP = 1_000
ALONE = "alone-"


def main() -> None:
    topology = load_topology(TOPOLOGY)
    print(f"  {MESSAGES:,} messages of {SIZE} B unbounded, then {PACED} at {RATE}/s; one sender, one receiver")
    with tempfile.TemporaryDirectory(prefix="crescendo-bench-") as folder:
        Path(folder).chmod(0o755)
        with running_network(local_network(topology), Path(folder) / "nodes") as running:
            measure_all(topology.graph, running)


def measure_all(graph: Graph, running: Mapping[str, RunningInstance]) -> None:
    """Every node alone, then every link, each with its ratios."""
    for name in running:  # unmeasured: what comes first would be slower
        _measured(graph, running, (name, name), f"{ALONE}{name}")
    alone: dict[str, tuple[float, float]] = {}
    for name in running:
        alone[name] = rate, p50_ms = _measured(graph, running, (name, name), f"{ALONE}{name}")
        print(f"  {name:26} {rate:>8,.0f} msg/s  p50 {p50_ms:7.2f} ms", flush=True)
    for name, ends in ways_of(graph).items():
        rate, p50_ms = _measured(graph, running, ends, name)
        single_rate, single_p50_ms = min(alone[end][0] for end in ends), max(alone[end][1] for end in ends)
        print(
            f"  {name:26} {rate:>8,.0f} msg/s  p50 {p50_ms:7.2f} ms  "
            f"rate × {rate / single_rate:.2f}, p50 × {p50_ms / single_p50_ms:.2f}",
            flush=True,
        )


def _measured(
    graph: Graph, running: Mapping[str, RunningInstance], ends: tuple[str, str], address: str
) -> tuple[float, float]:
    """Messages per second, and the median latency in milliseconds."""
    try:
        for messages in (WARM_UP, MESSAGES):
            rate = _through(graph, running, ends, address, messages, 0)
        with tempfile.TemporaryDirectory() as record:
            _through(graph, running, ends, address, PACED, RATE, Path(record))
            return rate, _p50_ms(Path(record))
    except RuntimeError as err:
        print(f"  {address}: {err}", flush=True)
        return math.nan, math.nan


def _through(
    graph: Graph,
    running: Mapping[str, RunningInstance],
    ends: tuple[str, str],
    address: str,
    messages: int,
    rate: float,
    record: Path | None = None,
) -> float:
    first, last = (running[name].endpoints["amqp"] for name in ends)
    nodes = graph.by_id()
    groups = []
    for name, url in zip(ends, (first, last), strict=True):
        linked = not address.startswith(ALONE)  # only the queues of links are there already
        called = {address: queue_address(nodes[name].program, address)} if linked else {}
        group = Group(size=PayloadSize.fixed(SIZE), rate=rate, address=f"queue://{address}")
        groups.append(group.located_at(url, called))
    quota = Quota(messages, NO_LIMIT)
    return through(first, groups[0], quota, record=record, receive_url=last, receive_group=groups[1])[1].rate


def _p50_ms(record: Path) -> float:
    found = [
        pq.read_table(part, columns=["sent_ns", "received_ns"])
        for part in record.rglob("*.parquet")
        if RECEIVED in str(part)
    ]
    if not found:
        return math.nan  # nothing arrived
    transfer_ns = np.concatenate([np.subtract(part["received_ns"], part["sent_ns"]) for part in found])
    return float(np.median(transfer_ns)) / 1e6


if __name__ == "__main__":
    main()
