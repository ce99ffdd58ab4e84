"""Do paced messages leave when they are due, and what does the waiting cost?

Whole runs without their analysis, through the loopback relay: senders of one process at 20,000 msg/s in all, over few
and over many connections. Lateness is the generator's own, as the sender reports it; CPU is the sender process alone,
from the kernel's accounting, while it sends.
"""

import contextlib
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from crescendo.control.conductor import Run
from crescendo.model.experiment import experiment_from
from crescendo.record.manifest import read_manifest
from crescendo.run.perform import Watcher, perform

RATE = 20_000
SECONDS = 30
CONNECTIONS = (10, 100)
WANTED = "within 0.1 % of the rate, p50 ≤ 0.2 ms, p99 ≤ 1 ms, ≤ 35 % of a core"


@dataclass
class Meter:
    """Looks at the CPU time of the sender whenever it has reported more messages."""

    looks: list[tuple[float, float]] = field(default_factory=list)
    messages: int = 0

    def __call__(self, run: Run) -> None:
        for sender in run.of("sender"):
            if sender.identity is None or sender.statistics is None or sender.statistics.messages <= self.messages:
                continue
            self.messages = sender.statistics.messages
            with contextlib.suppress(psutil.NoSuchProcess):
                times = psutil.Process(sender.identity.pid).cpu_times()
                self.looks.append((time.monotonic(), times.user + times.system))

    @property
    def cores(self) -> float:
        (begun, before), (ended, after) = self.looks[0], self.looks[-1]
        return (after - before) / (ended - begun)


def _nothing(*_: object) -> None:
    pass


def _measure(connections: int) -> None:
    experiment = experiment_from(
        {
            "name": "pacing",
            "workload": {"senders": connections, "receivers": 10, "rate": RATE / connections},
            "phases": {"warmup": "1s", "measure": f"{SECONDS}s", "drain": "10s"},
        }
    )
    meter = Meter()
    watcher = Watcher(lambda: False, _nothing, meter, _nothing, _nothing, _nothing)
    with tempfile.TemporaryDirectory(prefix="crescendo-bench-") as scratch:
        performance = perform(experiment, out=Path(scratch), command=["bench"], watcher=watcher)
        manifest = read_manifest(performance.run_dir)
    [sender] = [peer for peer in manifest.peers if peer.role == "sender"]
    # The last message of a connection stands for the time up to the next one, which would have been due then.
    sending_s = (sender.statistics["last_sent_ns"] - min(phase.start_ns for phase in manifest.phases)) / 1e9
    rate = sender.statistics["messages"] / (sending_s + connections / RATE)
    late = {name: sender.statistics[f"lateness_{name}_ns"] / 1e6 for name in ("p50", "p99")}
    print(
        f"  {connections:>4} connections   {rate:>10,.1f} msg/s ({rate / RATE - 1:+.3%})   "
        f"lateness p50 {late['p50']:.3f} ms, p99 {late['p99']:.3f} ms   {meter.cores:.1%} of a core",
        flush=True,
    )


def main() -> None:
    print(
        f"{RATE:,} msg/s of 256 B through the loopback relay, one sender process, {SECONDS} s, every message recorded"
    )
    for connections in CONNECTIONS:
        _measure(connections)
    print(f"  wanted: {WANTED}")


if __name__ == "__main__":
    main()
