"""How do we compare with a client in C? Quiver's arrow, when QUIVER_ARROW names one.

QUIVER_ARROW is the path of an implementation, such as quiver-arrow-qpid-proton-c: one process that sends, one that
receives, with quiver's own named arguments. Both go through the same system, AMQP 1.0, unsettled, 100 B, with the same
credit: the system that QUIVER_SYSTEM names, else Artemis, and a router where `qdrouterd` is on the PATH. The loopback
relay will not do: it passes bodies on, and an arrow reads its send time from a property. An arrow always writes its
transfers, so ours is measured twice, without and with a recording. Rates are from the first arrival to the last; CPU is
the kernel's account of the client processes.
"""

import os
import resource
import statistics
import subprocess
import tempfile
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from urllib.parse import unquote, urlsplit

from bench.brokers import broker
from bench.engines import NO_LIMIT, Child, through
from crescendo.calibrate.engine import TrialResult
from crescendo.load.assignment import Quota
from crescendo.model.errors import ConfigError
from crescendo.model.payload import PayloadSize
from crescendo.model.workload import Group

SIZE = 100
MESSAGES = 500_000
TURNS = 5
CREDIT = 1000  # what quiver does unless told otherwise
WANTED_RATE, WANTED_CPU = 1.2, 0.6
SYSTEMS = ("artemis", "qpid-dispatch")
OURS, QUIVER, RECORDED = SIDES = ("ours", "quiver", "ours, recorded")
Pair = tuple[TrialResult, TrialResult]  # sender, receiver


def _arrow(arrow: str, url: str, operation: str, transfers: Path) -> TrialResult:
    """One arrow from beginning to end. It is the only child of this process, so the children's CPU is its own."""
    parts = urlsplit(url)
    words = {
        "connection-mode": "client", "channel-mode": "active", "operation": operation,
        "id": f"{operation}-{uuid.uuid4().hex[:8]}", "host": parts.hostname, "port": parts.port, "path": "quiver",
        "duration": 0, "count": MESSAGES, "rate": 0, "body-size": SIZE, "credit-window": CREDIT,
        "transaction-size": 0, "durable": 0, "set-message-id": 0,
    }  # fmt: skip
    if parts.username is not None:
        words |= {"username": unquote(parts.username), "password": unquote(parts.password or "")}
    with transfers.open("wb") as file:
        subprocess.run([arrow, *(f"{name}={value}" for name, value in words.items())], stdout=file, check=True)
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    messages, seconds = _transferred(transfers)
    return TrialResult(messages, seconds, usage.ru_utime + usage.ru_stime, 0.0, messages)


def _transferred(transfers: Path) -> tuple[int, float]:
    """How many messages, and how long from the first to the last. Lines are `sent,0` or `sent,received`, in ms."""
    lines = transfers.read_bytes().splitlines()
    first, last = (max(map(int, line.split(b","))) for line in (lines[0], lines[-1]))
    return len(lines), (last - first) / 1000


def _theirs(arrow: str, url: str, scratch: Path) -> Pair:
    receiver = Child(_arrow, arrow, url, "receive", scratch / "receiver-transfers.csv")
    time.sleep(0.5)  # an arrow does not say when it is attached; a router holds senders back until it is
    sender = Child(_arrow, arrow, url, "send", scratch / "sender-transfers.csv")
    return sender.result(), receiver.result()


def _ours(url: str, record: Path | None) -> Pair:
    group = Group(size=PayloadSize.fixed(SIZE), rate=0, address=f"queue://ours?prefetch={CREDIT}")
    return through(url, group, Quota(MESSAGES, NO_LIMIT), record=record)


def _cost(pair: Pair) -> float:
    return pair[0].cpu_us + pair[1].cpu_us


def _turns(arrow: str, system: str) -> list[dict[str, Pair]]:
    """All sides once a turn; who begins changes from turn to turn. What a cold broker does is not kept."""
    turns: list[dict[str, Pair]] = []
    with broker(system, ("quiver", "ours")) as instance, tempfile.TemporaryDirectory() as folder:
        sides: list[tuple[str, Callable[[], Pair]]] = [
            (OURS, lambda: _ours(instance.url, None)),
            (QUIVER, lambda: _theirs(arrow, instance.url, Path(folder))),
            (RECORDED, lambda: _ours(instance.url, Path(folder) / uuid.uuid4().hex)),
        ]
        for turn in range(TURNS + 1):
            results = {name: measure() for name, measure in (sides if turn % 2 == 0 else sides[::-1])}
            for name, pair in results.items():
                if {result.messages for result in pair} != {MESSAGES}:
                    raise RuntimeError(f"{name}: {pair[0].messages:,} sent and {pair[1].messages:,} received")
            turns.append(results)
    return turns[1:]


def _measure(arrow: str, system: str) -> None:
    turns = _turns(arrow, system)
    print(f"{SIZE} B unsettled through {system}, {MESSAGES:,} messages, credit {CREDIT:,}, against {Path(arrow).name}")
    print(f"  {'':15} {'msg/s':>9}   µs CPU a message: send + receive")
    for number, turn in enumerate(turns, 1):
        for name in SIDES:
            sent, received = turn[name]
            costs = f"{sent.cpu_us:.2f} + {received.cpu_us:.2f} = {_cost(turn[name]):.2f}"
            print(f"  {number} {name:13} {received.rate:>9,.0f}   {costs}")
    for name in (OURS, RECORDED):
        rates = statistics.median(turn[name][1].rate / turn[QUIVER][1].rate for turn in turns)
        costs = statistics.median(_cost(turn[name]) / _cost(turn[QUIVER]) for turn in turns)
        print(f"  {name} ÷ quiver, median of {len(turns)} turns: rate {rates:.2f}, wanted ≥ {WANTED_RATE}", end="; ")
        print(f"CPU {costs:.2f}, wanted ≤ {WANTED_CPU}")


def main() -> None:
    arrow = os.environ.get("QUIVER_ARROW")
    if not arrow:
        print("  not measured: QUIVER_ARROW names no arrow")
        return
    asked = os.environ.get("QUIVER_SYSTEM")
    for system in (asked,) if asked else SYSTEMS:
        try:
            _measure(arrow, system)
        except ConfigError as err:
            print(f"  {system}: not measured: {err}")


if __name__ == "__main__":
    main()
