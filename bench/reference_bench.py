"""How far are our latencies from the truth?

The reference server of `tests/reference` delays messages by known distributions and notes when each one came and went.
One run per protocol, every message recorded. A difference is what we measured minus what the server took: the way
through two sockets and our own handling. The bare path is a route without delay in the same run. Plain sockets are
driven beside it without anything of ours.
"""

import sys
import tempfile
from pathlib import Path

import numpy as np

sys.path.append(str(Path(__file__).parents[1] / "tests" / "reference"))

from reference_comparison import Comparison, Ns
from reference_protocols import PROTOCOLS
from reference_runs import record
from reference_scenario import BARE, DISTRIBUTIONS, Scenario

RATE = 200.0
SECONDS = 15
WANTED = "on a quiet machine, 20 µs at p50 and 200 µs at p99 more than on the bare path"


def _cells(ns: Ns) -> str:
    p50, p99 = np.percentile(ns, (50, 99)) / 1e3
    return f"{p50:>7.0f} {p99:>7.0f} {ns.max() / 1e3:>8.0f}"


def _measure(protocol: str, directory: Path) -> None:
    run = record(Scenario(1, DISTRIBUTIONS), directory, rate=RATE, measure=f"{SECONDS}s", protocols=[protocol])
    compared = Comparison(run)
    bare = np.percentile(compared.deliveries(route=BARE).latency_excess_ns, (50, 99)) / 1e3
    for route in DISTRIBUTIONS:
        found = compared.deliveries(route=route)
        more = np.percentile(found.latency_excess_ns, (50, 99)) / 1e3 - bare
        shift = (np.percentile(found.latency_ns, (50, 99)) - np.percentile(found.true_latency_ns, (50, 99))) / 1e3
        print(
            f"  {protocol:8} {route:12} {_cells(found.latency_excess_ns)}   {more[0]:>+7.0f} {more[1]:>+7.0f}   "
            f"{_cells(found.way_out_ns)}   {shift[0]:>7.0f} {shift[1]:>7.0f}",
            flush=True,
        )
    print(f"  {'':8} {'(sockets)':12} {_cells(compared.plain_sockets().latency_excess_ns)}", flush=True)


def main() -> None:
    print(
        f"µs, {RATE:g} msg/s on each of {len(DISTRIBUTIONS)} routes, {SECONDS} s per protocol, every message recorded"
    )
    print(
        f"  {'':21} {'latency differs':>24}   {'more than bare':>15}   {'response differs':>24}   {'percentiles':>15}"
    )
    both = f"{'p50':>7} {'p99':>7}"
    print(f"  {'':21} {both} {'max':>8}   {both}   {both} {'max':>8}   {both}", flush=True)
    for protocol in PROTOCOLS:
        with tempfile.TemporaryDirectory(prefix="crescendo-bench-") as scratch:
            _measure(protocol, Path(scratch))
    print(f"  wanted: {WANTED}")


if __name__ == "__main__":
    main()
