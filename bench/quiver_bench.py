"""How do we compare with a client in C? Quiver's arrow, when QUIVER_ARROW names one.

QUIVER_ARROW is the path of an implementation, such as quiver-arrow-qpid-proton-c: one process that sends, one that
receives, with quiver's own named arguments. Both use the same system, AMQP 1.0, unsettled, 100 B, with the same credit:
the system in QUIVER_SYSTEM, else Artemis, and a router if `qdrouterd` is on the PATH. The loopback relay cannot be
used: it forwards only bodies, and an arrow reads its send time from a property. An arrow always writes its transfers,
so ours is measured twice, without and with a recording. Rates are from the first arrival to the last; CPU comes from
the kernel's accounting of the client processes.
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
from bench.results import compare
from crescendo.calibrate.engine_trial import TrialResult
from crescendo.load.assignment import Quota
from crescendo.model.errors import ConfigError
from crescendo.model.payload import PayloadSize
from crescendo.model.workload import Group

SIZE = 100
MESSAGES = 500_000
TRIALS = 5
CREDIT = 1000  # quiver's default
WANTED_RATE, WANTED_CPU = 1.2, 0.6
SYSTEMS = ("artemis", "qpid-dispatch")
OURS, QUIVER, RECORDED = SIDES = ("ours", "quiver", "ours, recorded")
Pair = tuple[TrialResult, TrialResult]  # sender, receiver


def _arrow(arrow: str, url: str, operation: str, transfers: Path) -> TrialResult:
    """Run one arrow. It is the only child of this process, so the children's CPU is its own."""
    parts = urlsplit(url)
    arguments = {
        "connection-mode": "client", "channel-mode": "active", "operation": operation,
        "id": f"{operation}-{uuid.uuid4().hex[:8]}", "host": parts.hostname, "port": parts.port, "path": "quiver",
        "duration": 0, "count": MESSAGES, "rate": 0, "body-size": SIZE, "credit-window": CREDIT,
        "transaction-size": 0, "durable": 0, "set-message-id": 0,
    }  # fmt: skip
    if parts.username is not None:
        arguments |= {"username": unquote(parts.username), "password": unquote(parts.password or "")}
    with transfers.open("wb") as file:
        subprocess.run([arrow, *(f"{name}={value}" for name, value in arguments.items())], stdout=file, check=True)
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    messages, seconds = _transferred(transfers)
    return TrialResult(messages, seconds, usage.ru_utime + usage.ru_stime, 0.0, messages)


def _transferred(transfers: Path) -> tuple[int, float]:
    """Number of messages, and seconds from the first to the last. Lines are `sent,0` or `sent,received` in ms."""
    lines = transfers.read_bytes().splitlines()
    first, last = (max(map(int, line.split(b","))) for line in (lines[0], lines[-1]))
    return len(lines), (last - first) / 1000


def _theirs(arrow: str, url: str, scratch: Path) -> Pair:
    receiver = Child(_arrow, arrow, url, "receive", scratch / "receiver-transfers.csv")
    time.sleep(0.5)  # an arrow does not report when it is attached; a router blocks senders until it is
    sender = Child(_arrow, arrow, url, "send", scratch / "sender-transfers.csv")
    return sender.result(), receiver.result()


def _ours(url: str, record: Path | None) -> Pair:
    group = Group(size=PayloadSize.fixed(SIZE), rate=0, address=f"queue://ours?prefetch={CREDIT}")
    return through(url, group, Quota(MESSAGES, NO_LIMIT), record=record)


def _cost(pair: Pair) -> float:
    return pair[0].cpu_us + pair[1].cpu_us


def _run_trials(arrow: str, system: str) -> list[dict[str, Pair]]:
    """All sides once per trial, in alternating order. The first trial warms the broker up and is dropped."""
    trials: list[dict[str, Pair]] = []
    with broker(system, ("quiver", "ours")) as instance, tempfile.TemporaryDirectory() as folder:
        sides: list[tuple[str, Callable[[], Pair]]] = [
            (OURS, lambda: _ours(instance.url, None)),
            (QUIVER, lambda: _theirs(arrow, instance.url, Path(folder))),
            (RECORDED, lambda: _ours(instance.url, Path(folder) / uuid.uuid4().hex)),
        ]
        for trial in range(TRIALS + 1):
            results = {name: measure() for name, measure in (sides if trial % 2 == 0 else sides[::-1])}
            for name, pair in results.items():
                if {result.messages for result in pair} != {MESSAGES}:
                    raise RuntimeError(f"{name}: {pair[0].messages:,} sent and {pair[1].messages:,} received")
            trials.append(results)
    return trials[1:]


def _measure(arrow: str, system: str) -> None:
    trials = _run_trials(arrow, system)
    print(f"{SIZE} B unsettled through {system}, {MESSAGES:,} messages, credit {CREDIT:,}, against {Path(arrow).name}")
    print(f"  {'':15} {'msg/s':>9}   µs CPU per message: send + receive")
    for number, trial in enumerate(trials, 1):
        for name in SIDES:
            sent, received = trial[name]
            costs = f"{sent.cpu_us:.2f} + {received.cpu_us:.2f} = {_cost(trial[name]):.2f}"
            print(f"  {number} {name:13} {received.rate:>9,.0f}   {costs}")
    for name in (OURS, RECORDED):
        what, arrow_name = f"AMQP 1.0 through {system}, {SIZE} B, {name}", Path(arrow).name
        pairs = [(_cost(trial[name]), _cost(trial[QUIVER])) for trial in trials]
        compare("quiver", what, "µs CPU per message", arrow_name, pairs, wanted=WANTED_CPU)
        pairs = [(trial[name][1].rate, trial[QUIVER][1].rate) for trial in trials]
        compare("quiver", what, "msg/s", arrow_name, pairs, wanted=WANTED_RATE, less_is_better=False)
        rates = statistics.median(trial[name][1].rate / trial[QUIVER][1].rate for trial in trials)
        costs = statistics.median(_cost(trial[name]) / _cost(trial[QUIVER]) for trial in trials)
        print(f"  {name} ÷ quiver, median of {len(trials)} trials: rate {rates:.2f}, wanted ≥ {WANTED_RATE}", end="; ")
        print(f"CPU {costs:.2f}, wanted ≤ {WANTED_CPU}")


def main() -> None:
    arrow = os.environ.get("QUIVER_ARROW")
    if not arrow:
        print("  not measured: QUIVER_ARROW is not set")
        return
    asked = os.environ.get("QUIVER_SYSTEM")
    for system in (asked,) if asked else SYSTEMS:
        try:
            _measure(arrow, system)
        except ConfigError as err:
            print(f"  {system}: not measured: {err}")


if __name__ == "__main__":
    main()
