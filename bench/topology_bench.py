"""How long do large topologies take, and what does each relay in a line cost?

A random network of 1,000 routers and 4,000 links is generated and checked. Then the same messages go through the
loopback relay, through one relay that works as a router, and through lines of two and three.
"""

import random
import tempfile
import time
from pathlib import Path

from bench.brokers import broker
from bench.engines import NO_LIMIT, through
from crescendo.load.assignment import Quota
from crescendo.model.payload import PayloadSize
from crescendo.model.workload import Group
from crescendo.topology.generate import generate
from crescendo.topology.graph import GraphLink, GraphNode, ordered
from crescendo.topology.local_network import local_network, running_network
from crescendo.topology.network_check import check_network
from crescendo.topology.topology_file import PortBases, Topology, load_topology

NODES, LINKS = 1_000, 4_000
MESSAGES = 100_000
SIZE = 256


def main() -> None:
    _large_network()
    print(f"  {MESSAGES:,} messages of {SIZE} B, unsettled, one sender and one receiver process")
    _print("loopback", _through_loopback())
    one = _through_line(1)
    _print("1 relay", one)
    for routers in (2, 3):
        rate = _through_line(routers)
        _print(f"{routers} relays", rate, f", {rate / one:.2f} of one relay")


def _print(name: str, rate: float, more: str = "") -> None:
    print(f"  {name:10} {rate:>10,.0f} msg/s{more}", flush=True)


def _large_network() -> None:
    chance = random.Random(1)
    names = [f"r{number}" for number in range(NODES)]
    pairs = {(names[at], names[chance.randrange(at)]) for at in range(1, NODES)}  # connected
    while len(pairs) < LINKS:
        a, b = chance.sample(names, 2)
        if (b, a) not in pairs:
            pairs.add((a, b))
    nodes = [GraphNode(id=name, type="router", machine=name, address=name) for name in names]
    links = [GraphLink(source=a, target=b, cost=chance.randint(1, 9)) for a, b in sorted(pairs)]
    start_s = time.perf_counter()
    network = generate(Topology(ordered(nodes, links, directed=False), {}, PortBases()))
    generated_s = time.perf_counter()
    findings = check_network(network)
    checked_s = time.perf_counter()
    print(
        f"  {NODES:,} routers, {LINKS:,} links: generated in {generated_s - start_s:.2f} s, "
        f"checked in {checked_s - generated_s:.2f} s, {len(findings)} problems",
        flush=True,
    )


def _group(name: str) -> Group:
    return Group(size=PayloadSize.fixed(SIZE), rate=0, address=f"queue://{name}")


def _through_loopback() -> float:
    with broker("loopback") as relay:
        return through(relay.url, _group("bench"), Quota(MESSAGES, NO_LIMIT))[1].rate


def _through_line(routers: int) -> float:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "line.yml"
        path.write_text(f"graph_type: line\nrouters: {routers}\nrouter_program: relay\n")
        with running_network(local_network(load_topology(path)), Path(folder) / "nodes") as running:
            first, last = (running[name].endpoints["amqp"] for name in ("router1", f"router{routers}"))
            return through(first, _group("bench"), Quota(MESSAGES, NO_LIMIT), receive_url=last)[1].rate


if __name__ == "__main__":
    main()
