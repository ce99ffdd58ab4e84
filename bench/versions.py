"""Does this version cost more CPU per message than an older one?

    python -m bench.versions REVISION [--turns N] [--only relay,null-sink,mlmq]

Checks the older revision out beside this one and runs the same experiments with both, in alternating turns, so that a
slow minute of the machine hits both. Talks to each version only through its command line and the files that a run
leaves, which stay the same when modules move. Prints the median ratio of neighbouring turns, new / old, with a 95 %
interval. Records nothing and judges nothing.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow.compute as pc
import pyarrow.parquet as pq

ROOT = Path(__file__).parents[1]
RUNS = {
    "relay": {
        "system": {"kind": "loopback"},
        "workload": {"senders": 1, "receivers": 1, "size": 256, "rate": 0, "settle": "at-least-once"},
        "phases": {"warmup": "1s", "measure": "6s", "drain": "5s"},
        "checks": {"lost": 0},
    },
    "mlmq": {
        "system": {"kind": "mlmq", "settings": {"brokers": 1}},
        "workload": {"protocol": "mlmq", "senders": 4, "receivers": 4, "size": 256, "rate": 0},
        "phases": {"warmup": "1s", "measure": "6s", "drain": "10s"},
        "inspect": [{"kind": "process", "every": "500ms"}],
        "checks": {"lost": 0},
    },
}


def main(arguments: list[str]) -> int:
    options = _options(arguments)
    with _checkout(options.revision) as old:
        for name in options.only.split(","):
            measure = MEASURES[name]
            pairs = []
            for turn in range(options.turns):
                order = (old, ROOT) if turn % 2 == 0 else (ROOT, old)
                costs = {tree: measure(tree) for tree in order}
                pairs.append((costs[old], costs[ROOT]))
                print(f"  {name} turn {turn + 1}: old {costs[old]:.3f}, new {costs[ROOT]:.3f} µs", flush=True)
            print(_line(name, options.revision, pairs), flush=True)
    return 0


def _options(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.versions", description=__doc__.splitlines()[0])
    parser.add_argument("revision", help="the older version, as git names it")
    parser.add_argument("--turns", type=int, default=10, help="turns of each version (default: 10)")
    parser.add_argument("--only", default=",".join(MEASURES), help="which measurements, separated by commas")
    options = parser.parse_args(arguments)
    if unknown := set(options.only.split(",")) - set(MEASURES):
        parser.error(f"no measurement is called {min(unknown)!r}; choose from {', '.join(MEASURES)}")
    return options


@contextmanager
def _checkout(revision: str) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="crescendo-versions-") as directory:
        tree = Path(directory) / "old"
        git = ["git", "-C", str(ROOT), "worktree"]
        subprocess.run([*git, "add", "--quiet", "--detach", str(tree), revision], check=True)
        try:
            yield tree
        finally:
            subprocess.run([*git, "remove", "--force", str(tree)], check=True)


def _null_sink(tree: Path) -> float:
    """µs per message that one sender process needs; it has a core to itself, so this is CPU."""
    with tempfile.TemporaryDirectory() as directory:
        found = json.loads(_crescendo(tree, Path(directory), "calibrate", "amqp10", "--size", "256", "--json"))
    return 1e6 / next(ceiling["rate"] for ceiling in found["ceilings"] if ceiling["role"] == "sender")


def _run(name: str, tree: Path) -> float:
    """µs of CPU per message received, of all processes that take part."""
    with tempfile.TemporaryDirectory() as directory:
        folder = Path(directory)
        experiment = folder / "experiment.yml"
        experiment.write_text(json.dumps({"name": name} | RUNS[name]))
        _crescendo(tree, folder, "run", str(experiment), "--out", str(folder / "out"))
        (manifest,) = folder.glob("out/*/manifest.json")
        peers = json.loads(manifest.read_text())["peers"]
        received = sum(peer["statistics"]["messages"] for peer in peers if peer["role"] == "receiver")
        seconds = sum(peer["statistics"]["cpu_seconds"] for peer in peers if peer["role"] != "inspector")
        return (seconds + _system_cpu_s(manifest.parent)) * 1e6 / received


def _system_cpu_s(run_dir: Path) -> float:
    """CPU seconds of the system's processes while they were inspected; 0 where no inspector ran."""
    total = 0.0
    for part in run_dir.glob("readings/*.parquet"):
        table = pq.read_table(part)
        wanted = pc.and_(pc.equal(table["metric"], "cpu_seconds"), pc.equal(table["entity"], "process"))
        values = table.filter(wanted)["value"].to_pylist()
        total += max(values, default=0.0) - min(values, default=0.0)
    return total


def _crescendo(tree: Path, home: Path, *words: str) -> str:
    surroundings = os.environ | {"PYTHONPATH": str(tree / "src"), "XDG_STATE_HOME": str(home)}
    done = subprocess.run(
        [sys.executable, "-m", "crescendo.cli.main", *words],
        env=surroundings, cwd=home, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode not in {0, 1, 3}:
        raise SystemExit(f"{' '.join(words)} in {tree}: {done.stderr[-1000:]}")
    return done.stdout


def _line(name: str, revision: str, pairs: list[tuple[float, float]]) -> str:
    ratios = sorted(new / old for old, new in pairs)
    old, new = (statistics.median(side) for side in zip(*pairs, strict=True))
    return f"{name}: old ({revision}) {old:.3f} µs, new {new:.3f} µs; new ÷ old {_with_interval(ratios)}"


def _with_interval(ratios: list[float]) -> str:
    """The median, and the order statistics that hold the true one 19 times in 20."""
    count = len(ratios)
    rank = max(0, int(count / 2 - 0.98 * count**0.5))
    return f"{statistics.median(ratios):.3f} ({ratios[rank]:.3f} to {ratios[count - 1 - rank]:.3f}, {count} turns)"


MEASURES: dict[str, Callable[[Path], float]] = {
    "null-sink": _null_sink,
    "relay": lambda tree: _run("relay", tree),
    "mlmq": lambda tree: _run("mlmq", tree),
}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
