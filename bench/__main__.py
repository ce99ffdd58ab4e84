"""`make bench`: every measurement, one after the other; or those that are named: make bench ARGS="relay recording"."""

import sys

from bench import inspectors_bench, null_sink, pipeline_bench, recording_bench, relay_bench

BENCHES = {
    "null-sink": null_sink.main,
    "relay": relay_bench.main,
    "recording": recording_bench.main,
    "pipeline": pipeline_bench.main,
    "inspectors": inspectors_bench.main,
}


def main(names: list[str]) -> int:
    unknown = [name for name in names if name not in BENCHES]
    if unknown:
        print(f"no measurement is called {unknown[0]!r}; choose from {', '.join(BENCHES)}", file=sys.stderr)
        return 2
    for name in names or BENCHES:
        print(f"\n## {name}", flush=True)
        BENCHES[name]()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
