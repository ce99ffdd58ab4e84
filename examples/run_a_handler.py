"""Let an agent run a command of yours in the middle of a run.

    python examples/run_a_handler.py

It makes a git repository with one handler, allows its commit in the configuration of an agent, and runs an experiment
whose fault is that handler. The handler says what it does in the recording; this program prints it.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import pyarrow.dataset as ds
import yaml

import crescendo

HANDLER = """#!/usr/bin/env python3
import json, os, sys, time

given = json.load(sys.stdin)
with os.fdopen(int(os.environ["CRESCENDO_EVENTS_FD"]), "w") as events:
    print(json.dumps({"event": "cache dropped", "t_ns": time.monotonic_ns()}), file=events)
print("dropped", given["what"])
"""


def repository(directory: Path) -> str:
    """A repository with the handler; its commit."""
    handler = directory / "user_command" / "drop_cache"
    handler.parent.mkdir(parents=True)
    handler.write_text(HANDLER)
    handler.chmod(0o755)
    author = ("-c", "user.name=example", "-c", "user.email=example@example.org")
    for arguments in (("init", "--quiet"), ("add", "--all"), (*author, "commit", "--quiet", "--message=handlers")):
        subprocess.run(["git", *arguments], cwd=directory, check=True)
    done = subprocess.run(["git", "rev-parse", "HEAD"], cwd=directory, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def main(directory: Path) -> None:
    source = directory / "handlers"
    commit = repository(source)
    allowed = {"sources": [{"from": str(source), "commits": [commit]}], "limits": {"time": "10s"}}
    (directory / "agent.yml").write_text(yaml.safe_dump(allowed))
    experiment = crescendo.experiment_from(
        {
            "name": "handler",
            "workload": {"senders": 1, "receivers": 1, "rate": 200},
            "phases": {"warmup": "0s", "measure": "2s", "drain": "5s"},
            "agents": [{"name": "north", "config": str(directory / "agent.yml"), "source": str(source)}],
            "faults": [
                {
                    "at": "measure + 500ms",
                    "on": "north",
                    "do": "handler",
                    "with": {"command": "drop_cache", "parameters": {"what": "pages"}},
                }
            ],
        }
    )
    result = crescendo.run(experiment, out=directory / "runs", analyze=False)
    print(result.state.value)
    events = ds.dataset(result.run_dir / "events", format="parquet").to_table().sort_by("t_ns").to_pylist()
    for event in events:
        if event["source"] == "agent-north":
            print(event["kind"], json.loads(event["detail"]))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(temporary))
