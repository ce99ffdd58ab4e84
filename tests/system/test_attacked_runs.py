"""Two runs and two standing peers on one Mosquitto while another account attacks all of them.

Nothing changes, nothing leaks, a deadline that expires is kept, and Ctrl-C is heard.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from crescendo.control.bus import KEEPALIVE_S
from crescendo.control.notes import Command
from crescendo.control.trust import Lab
from crescendo.record.reader import open_recording
from crescendo.run.lab_client import LabClient
from crescendo.systems.instance import RunningInstance
from whole_runs import CRESCENDO, Launcher, Session, launching, write_experiment

pytestmark = pytest.mark.quiet  # a flood on busy cores is another test

STRANGER = "4242"
MARK = "confidential"
AS_STRANGER = ["setpriv", f"--reuid={STRANGER}", f"--regid={STRANGER}", "--clear-groups"]
ATTACKER = Path(__file__).with_name("control_attacker.py")
INTERRUPTED_S = 1.0
LEASE_S, REPORT_S, LATE_S = 6.0, 1.2, 1.2
BROKER_S = 1.5 * KEEPALIVE_S
"""So long a broker waits for a client that is silent."""

TOKEN = "a77ac4" * 8
STANDING = ("sender-a", "receiver-a")
WITH_STANDING_PEERS = str(Path(__file__).with_name("lab_run.py"))

RUN = """
import sys
import crescendo
with crescendo.Interruption() as interruption:
    result = crescendo.run(
        sys.argv[1], out=sys.argv[2], control=open(sys.argv[3]).read().strip(), analyze=False, interruption=interruption
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


def private(path: Path, text: str) -> Path:
    path.touch(mode=0o600)
    path.write_text(text + "\n")
    return path


def stand(launch: Launcher, directory: Path, url_file: Path, token_file: Path) -> None:
    """Two standing peers, ready for runs."""
    access = ["--control-file", str(url_file), "--token-file", str(token_file)]
    options = (("peer", name.partition("-")[0], "--id", name, "--data", str(directory / name)) for name in STANDING)
    standing = [launch._start([CRESCENDO, *words, *access], directory) for words in options]
    for session in standing:
        assert session.process.stderr is not None
        assert "waits for runs" in session.process.stderr.readline()


def standing_peers(client: LabClient) -> dict[str, tuple[int, str]]:
    """Name -> process and state, of those that answer."""
    answers = client.ping(client.lab.scope, 20.0, enough=len(STANDING))
    return {identity.id: (identity.pid, pong.state) for identity, pong, _ in answers}


def test_another_account_and_another_run_change_nothing(mosquitto: RunningInstance, reachable_dir: Path) -> None:
    script = shutil.copy(ATTACKER, reachable_dir)
    url_file = private(reachable_dir / "control.url", mosquitto.url)
    token_file = private(reachable_dir / "lab.token", TOKEN)
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
        with launching(reachable_dir) as launch, LabClient(mosquitto.url, Lab(TOKEN), "watching") as client:
            stand(launch, reachable_dir, url_file, token_file)
            before = standing_peers(client)
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
                program = [WITH_STANDING_PEERS] if name == "whole" else ["-c", RUN]
                given = [str(path), str(out), str(url_file), *([str(token_file)] if name == "whole" else [])]
                runs[name] = launch._start([sys.executable, *program, *given], out)
            runs["interrupted"].wait_for_start()
            silent_ns = time.monotonic_ns()
            runs["interrupted"].peer("inspector").suspend()
            done = runs["whole"].finish(120)
            assert done.stdout.strip() == "sealed", done.stderr
            assert standing_peers(client) == before == {name: (before[name][0], "free") for name in STANDING}
            for identity, _, _ in client.ping(client.lab.scope, 20.0, enough=len(STANDING)):
                dropped = client.ask(client.lab.scope, identity, Command.GET).payload["dropped"]
                assert dropped["not authentic"] > 100
                assert list((reachable_dir / identity.id).iterdir()) == []
            time.sleep(max(LEASE_S + LATE_S - (time.monotonic_ns() - silent_ns) / 1e9, 0))
            asked_ns = time.monotonic_ns()
            runs["interrupted"].process.send_signal(signal.SIGINT)
            assert runs["interrupted"].finish(60).stdout.strip() == "incomplete"
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
    lost_ns, detail = events(runs["interrupted"])["lost"]
    # Whichever comes first: the conductor's own deadline, or the broker's, which then publishes the last will.
    assert re.search("no report for 6 s|control connection broke", json.loads(detail)["reason"])
    assert BROKER_S - REPORT_S < (lost_ns - silent_ns) / 1e9 < LEASE_S + LATE_S
    heard_ns, _ = events(runs["interrupted"])["interrupted"]
    assert (heard_ns - asked_ns) / 1e9 < INTERRUPTED_S
    assert attack["sent"] / attack["seconds"] > 1000, "it was a flood"
    assert attack["readable"], "it read what is not secret"
    assert not attack["leaked"]
