"""How do we compare with a client in C? Quiver's arrow, when QUIVER_ARROW names one.

QUIVER_ARROW is the path of an implementation, such as quiver-arrow-qpid-proton-c: one process that sends, one that
receives, with quiver's own named arguments. Both go through the same system, AMQP 1.0, unsettled, 100 B: a router where
`qdrouterd` is on the PATH, else the loopback relay. CPU is the kernel's account of the client processes.
"""

import os
import resource
import statistics
import subprocess
import time
import uuid
from pathlib import Path
from urllib.parse import urlsplit

from bench.brokers import broker
from bench.engines import NO_LIMIT, Child, through
from crescendo.calibrate.engine import Effort
from crescendo.load.assignment import Quota
from crescendo.model.errors import ConfigError
from crescendo.model.payload import Payload
from crescendo.model.workload import Group

SIZE = 100
MESSAGES = 500_000
TURNS = 3
CREDIT = 1000
WANTED_RATE, WANTED_CPU = 1.2, 0.6
Pair = tuple[Effort, Effort]


def _arrow(arrow: str, url: str, operation: str, path: str) -> Effort:
    """One arrow from beginning to end. It is the only child of this process, so the children's CPU is its own."""
    parts = urlsplit(url)
    words = {
        "connection-mode": "client", "channel-mode": "active", "operation": operation,
        "id": f"{operation}-{uuid.uuid4().hex[:8]}", "host": parts.hostname, "port": parts.port, "path": path,
        "duration": 0, "count": MESSAGES, "body-size": SIZE, "credit-window": CREDIT, "transaction-size": 0,
        "durable": 0, "settlement": 0,
    }  # fmt: skip
    begun = time.monotonic()
    subprocess.run(
        [arrow, *(f"{name}={value}" for name, value in words.items())], stdout=subprocess.DEVNULL, check=True
    )
    seconds = time.monotonic() - begun
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return Effort(MESSAGES, seconds, usage.ru_utime + usage.ru_stime, 0.0, MESSAGES)


def _theirs(arrow: str, url: str, path: str) -> Pair:
    receiver = Child(_arrow, arrow, url, "receive", path)
    time.sleep(0.5)  # an arrow does not say when it is attached; a router holds senders back until it is
    sender = Child(_arrow, arrow, url, "send", path)
    return sender.result(), receiver.result()


def _ours(url: str, path: str) -> Pair:
    group = Group(size=Payload.fixed(SIZE), rate=0, address=f"queue://{path}")
    return through(url, group, Quota(MESSAGES, NO_LIMIT))


def _cost(pair: Pair) -> float:
    return pair[0].cpu_us + pair[1].cpu_us


def _rate(pair: Pair, side: int) -> float:
    """What got through: an arrow that sends ends when all is settled, our receiver with the last message."""
    return pair[1 - side].rate


def _measure(arrow: str, system: str) -> None:
    turns: list[tuple[Pair, Pair]] = []
    with broker(system, ("quiver", "ours")) as instance:
        for turn in range(TURNS):
            first_theirs = _theirs(arrow, instance.url, "quiver") if turn % 2 else None
            ours = _ours(instance.url, "ours")
            turns.append((ours, first_theirs or _theirs(arrow, instance.url, "quiver")))
    print(f"{SIZE} B unsettled through {system}, {MESSAGES:,} messages, {TURNS} turns, against {Path(arrow).name}")
    for side, name in ((0, "ours"), (1, "quiver")):
        rate = statistics.median(_rate(turn[side], side) for turn in turns)
        cpu = statistics.median(_cost(turn[side]) for turn in turns)
        print(f"  {name:7} {rate:>10,.0f} msg/s   {cpu:.3f} µs CPU a message, send and receive")
    rates = statistics.median(_rate(ours, 0) / _rate(theirs, 1) for ours, theirs in turns)
    costs = statistics.median(_cost(ours) / _cost(theirs) for ours, theirs in turns)
    print(f"  rate: ours ÷ quiver = {rates:.2f}, wanted ≥ {WANTED_RATE}", end="; ")
    print(f"CPU: ours ÷ quiver = {costs:.2f}, wanted ≤ {WANTED_CPU}")


def main() -> None:
    arrow = os.environ.get("QUIVER_ARROW")
    if not arrow:
        print("  not measured: QUIVER_ARROW names no arrow")
        return
    for system in ("qpid-dispatch", "loopback"):
        try:
            _measure(arrow, system)
        except ConfigError as err:
            print(f"  {system}: not measured: {err}")
            continue
        return


if __name__ == "__main__":
    main()
