"""Does this version cost more CPU per message than an older one?

    python -m bench.versions REVISION [--turns N] [--only null-sink,relay,pacing,mlmq]

Checks the older revision out beside this one and runs the same experiments with both at the same time, each on one core
of its own, and swaps the cores every turn: whatever else the machine does hits both. Talks to each version only through
its command line and the files that a run leaves, which stay the same when modules move. Prints the median ratio of
all turns, new / old, with a 95 % interval. Records nothing and judges nothing.
"""

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import time
import venv
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyarrow.compute as pc
import pyarrow.parquet as pq

ROOT = Path(__file__).parents[1]
PINNED = "import os, sys; os.sched_setaffinity(0, {int(sys.argv[1])}); os.execv(sys.argv[2], sys.argv[2:])"
"""Runs a command on one core, with all its children."""

RUNS = {
    "relay": {
        "system": {"kind": "loopback"},
        "workload": {"senders": 1, "receivers": 1, "size": 256, "rate": 0, "settle": "at-least-once"},
        "phases": {"warmup": "1s", "measure": "6s", "drain": "5s"},
        "checks": {"lost": 0},
    },
    "pacing": {
        "system": {"kind": "loopback"},
        "workload": {"senders": 100, "receivers": 1, "size": 256, "rate": 200, "settle": "at-least-once"},
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
    with _checkout(options.revision) as trees:
        old, new = (_python_of(tree) for tree in trees)
        for name in options.only.split(","):
            measure = MEASURES[name]
            pairs = []
            for turn in range(options.turns):
                cores = sorted(os.sched_getaffinity(0))[:2]
                with ThreadPoolExecutor() as both:
                    older = both.submit(measure, old, cores[turn % 2])
                    newer = both.submit(measure, new, cores[1 - turn % 2])
                pairs.append((older.result(), newer.result()))
                print(f"  {name} turn {turn + 1}: old {pairs[-1][0]:.3f}, new {pairs[-1][1]:.3f} µs", flush=True)
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
def _checkout(revision: str) -> Iterator[tuple[Path, Path]]:
    """The older version and the commit that is checked out here, each in a directory of its own."""
    with tempfile.TemporaryDirectory(prefix="crescendo-versions-") as directory, ExitStack() as removed:
        Path(directory).chmod(0o755)  # as root, systems run as another account
        trees = Path(directory) / "old", Path(directory) / "new"
        git = ["git", "-C", str(ROOT), "worktree"]
        for tree, commit in zip(trees, (revision, "HEAD"), strict=True):
            subprocess.run([*git, "add", "--quiet", "--detach", str(tree), commit], check=True)
            removed.callback(subprocess.run, [*git, "remove", "--force", str(tree)], check=True)
        yield trees


def _python_of(tree: Path) -> Path:
    """An environment with the libraries of this one and the package of that tree: systems inherit no PYTHONPATH."""
    venv.create(tree / "venv", with_pip=False)
    python = tree / "venv" / "bin" / "python"
    [packages] = (tree / "venv" / "lib").glob("python*/site-packages")
    (packages / "version.pth").write_text(f"{tree / 'src'}\n{sysconfig.get_path('purelib')}\n")
    return python


def _null_sink(python: Path, core: int) -> float:
    """µs per message that one sender process and its null sink need together, on one core."""
    with tempfile.TemporaryDirectory() as directory:
        found = json.loads(_crescendo(python, Path(directory), core, "calibrate", "amqp10", "--size", "256", "--json"))
    return 1e6 / next(ceiling["rate"] for ceiling in found["ceilings"] if ceiling["role"] == "sender")


def _run(name: str, python: Path, core: int, roles: frozenset[str]) -> float:
    """µs of CPU per message received: of the peers with these roles, and of the system if it was inspected."""
    with tempfile.TemporaryDirectory() as directory:
        folder = Path(directory)
        experiment = folder / "experiment.yml"
        experiment.write_text(json.dumps({"name": name} | RUNS[name]))
        manifest = _record(python, folder, core, experiment)
        peers = json.loads(manifest.read_text())["peers"]
        received = sum(peer["statistics"]["messages"] for peer in peers if peer["role"] == "receiver")
        seconds = sum(peer["statistics"]["cpu_seconds"] for peer in peers if peer["role"] in roles)
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


def _record(python: Path, home: Path, core: int, experiment: Path) -> Path:
    """Run an experiment until its recording is sealed. The analysis is interrupted: it would cost more than the run."""
    words = _command(python, core, "run", str(experiment), "--out", str(home / "out"))
    quiet = subprocess.DEVNULL
    with subprocess.Popen(
        words, env=os.environ | {"XDG_STATE_HOME": str(home)}, cwd=home, stdout=quiet, stderr=quiet
    ) as process:
        while process.poll() is None and not _sealed(home):
            time.sleep(0.1)
        process.send_signal(signal.SIGINT)
    if not (manifest := _sealed(home)):
        raise SystemExit(
            f"{experiment.name} with {python} ended with {process.returncode} and without a sealed recording"
        )
    return manifest


def _sealed(home: Path) -> Path | None:
    for manifest in home.glob("out/*/manifest.json"):
        if json.loads(manifest.read_text())["state"] == "sealed":
            return manifest
    return None


def _command(python: Path, core: int, *words: str) -> list[str]:
    return [sys.executable, "-c", PINNED, str(core), str(python), "-m", "crescendo.cli.main", *words]


def _crescendo(python: Path, home: Path, core: int, *words: str) -> str:
    done = subprocess.run(
        _command(python, core, *words),
        env=os.environ | {"XDG_STATE_HOME": str(home)},
        cwd=home,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode not in {0, 1, 3}:
        raise SystemExit(f"{' '.join(words)} with {python}: {done.stderr[-1000:]}")
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


LOAD = frozenset(("sender", "receiver"))
MEASURES: dict[str, Callable[[Path, int], float]] = {
    "null-sink": _null_sink,
    "relay": lambda python, core: _run("relay", python, core, LOAD),
    "pacing": lambda python, core: _run("pacing", python, core, frozenset(("sender",))),
    "mlmq": lambda python, core: _run("mlmq", python, core, LOAD),
}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
