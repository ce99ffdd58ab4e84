"""`make bench`: every measurement, one after the other; or those that are named: make bench ARGS="relay recording"."""

import sys
from importlib import import_module

BENCHES = {
    "null-sink": "null_sink",
    "relay": "relay_bench",
    "topology": "topology_bench",
    "federation": "federation_bench",
    "faults": "faults_bench",
    "clients": "clients_bench",
    "quiver": "quiver_bench",
    "jms": "jms_bench",
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
    "mlmq": "mlmq_bench",
}


def main(names: list[str]) -> int:
    unknown = [name for name in names if name not in BENCHES]
    if unknown:
        print(f"no measurement is called {unknown[0]!r}; choose from {', '.join(BENCHES)}", file=sys.stderr)
        return 2
    for name in names or BENCHES:
        print(f"\n## {name}", flush=True)
        import_module(f"bench.{BENCHES[name]}").main()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
