"""Two runs on one Mosquitto while another account attacks both: nothing changes, nothing leaks, Ctrl-C is heard."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from crescendo.record.reader import open_recording
from crescendo.systems.instance import RunningInstance
from whole_runs import Session, launching, write_experiment

pytestmark = pytest.mark.quiet  # a flood on busy cores is another test

STRANGER = "4242"
MARK = "confidential"
AS_STRANGER = ["setpriv", f"--reuid={STRANGER}", f"--regid={STRANGER}", "--clear-groups"]
ATTACKER = Path(__file__).with_name("control_attacker.py")
INTERRUPTED_S = 1.0

RUN = """
import sys
import crescendo
with crescendo.Interruption() as interruption:
    result = crescendo.run(
        sys.argv[1], out=sys.argv[2], control=open(sys.argv[3]).read(), analyze=False, interruption=interruption
    )
print(result.state.value, flush=True)
"""


def events(session: Session) -> dict[str, tuple[int, str]]:
    """Kind of event -> when, and its detail, from the conductor's part of the recording."""
    found: dict[str, tuple[int, str]] = {}
    for part in open_recording(session.run_dir()).parts:
        if part.table == "events":
            for row in pq.read_table(session.run_dir() / part.path).to_pylist():
                found[row["kind"]] = (row["t_ns"], row["detail"])
    return found


def test_another_account_and_another_run_change_nothing(mosquitto: RunningInstance, reachable_dir: Path) -> None:
    script = shutil.copy(ATTACKER, reachable_dir)
    url_file = reachable_dir / "control.url"
    url_file.touch(mode=0o600)
    url_file.write_text(mosquitto.url)
    account = AS_STRANGER if os.geteuid() == 0 else []
    attacker = subprocess.Popen(
        [*account, "/usr/bin/python3", "-I", script, MARK],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert attacker.stdin is not None
    assert attacker.stdout is not None
    try:
        print(mosquitto.url, file=attacker.stdin, flush=True)
        assert attacker.stdout.readline() == "ready\n"
        with launching(reachable_dir) as launch:
            runs = {}
            for name, measure in (("whole", "3s"), ("interrupted", "120s")):
                path = write_experiment(
                    reachable_dir / f"{name}.yml",
                    name=f"{MARK}-{name}",
                    workload={"senders": 1, "receivers": 1, "rate": 100},
                    phases={"warmup": "500ms", "measure": measure},
                    inspect=[{"kind": "process"}],
                )
                out = reachable_dir / name
                runs[name] = launch._start([sys.executable, "-c", RUN, str(path), str(out), str(url_file)], out)
            done = runs["whole"].finish(120)
            assert done.stdout.strip() == "sealed", done.stderr
            runs["interrupted"].wait_for_measure()
            asked_ns = time.monotonic_ns()
            runs["interrupted"].process.send_signal(signal.SIGINT)
            assert runs["interrupted"].finish(60).stdout.strip() == "interrupted"
        attack = json.loads(attacker.communicate("\n", timeout=60)[0])
    finally:
        attacker.kill()
        attacker.wait()
    recording = open_recording(runs["whole"].run_dir())
    assert not recording.damaged
    assert recording.rows("sent") == recording.rows("received") == 350
    dropped = json.loads(events(runs["whole"])["notes dropped"][1])
    assert dropped["not authentic"] > 100
    assert dropped["repeated"] > 10
    heard_ns, _ = events(runs["interrupted"])["interrupted"]
    assert (heard_ns - asked_ns) / 1e9 < INTERRUPTED_S
    assert attack["sent"] / attack["seconds"] > 1000, "it was a flood"
    assert attack["readable"], "it read what is not secret"
    assert not attack["leaked"]
