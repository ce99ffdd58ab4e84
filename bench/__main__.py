"""`make bench`: every measurement, one after the other; or those that are named: make bench ARGS="relay recording".

Writes what was found to bench-results.json; with --kept to docs/performance.json, and then docs/performance.md from it.
"""

import argparse
import sys
from importlib import import_module
from pathlib import Path

from bench import performance_page
from bench.results import collected, write_results
from crescendo.run import host_facts

BENCHES = {
    "null-sink": "null_sink",
    "relay": "relay_bench",
    "topology": "topology_bench",
    "federation": "federation_bench",
    "faults": "faults_bench",
    "clients": "clients_bench",
    "quiver": "quiver_bench",
    "jms": "jms_bench",
    "batches": "batches_bench",
    "pacing": "pacing_bench",
    "reference": "reference_bench",
    "recording": "recording_bench",
    "fsync": "fsync_bench",
    "pipeline": "pipeline_bench",
    "verdict": "verdict_bench",
    "intervals": "intervals_bench",
    "inspectors": "inspectors_bench",
    "control": "control_bench",
    "cluster": "cluster_bench",
    "history": "history_bench",
    "campaigns": "campaigns_bench",
    "lab": "lab_bench",
    "amqperf": "amqperf_bench",
    "mlmq": "mlmq_bench",
    "web": "web_bench",
}


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(BENCHES))
    parser.add_argument("--out", type=Path, default=Path("bench-results.json"), help="where the results go")
    parser.add_argument("--kept", action="store_true", help="keep them as docs/performance.json, and write the page")
    options = parser.parse_args(arguments)
    if unknown := [name for name in options.names if name not in BENCHES]:
        print(f"no measurement is called {unknown[0]!r}; choose from {', '.join(BENCHES)}", file=sys.stderr)
        return 2
    names, machine = options.names or list(BENCHES), host_facts.host()
    path = performance_page.KEPT if options.kept else options.out
    for number, name in enumerate(names, 1):
        print(f"\n## {name}", flush=True)
        import_module(f"bench.{BENCHES[name]}").main()
        results = collected(names[:number], machine)
        write_results(path, results)  # after each, so that an interrupt costs only the one that it hits
    if options.kept:
        performance_page.PAGE.write_text(performance_page.page_of(results), encoding="utf-8")
    print(f"\n{len(results.comparisons)} ratios and {len(results.figures)} figures are in {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
