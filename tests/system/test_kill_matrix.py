"""Every process of a run, killed in every phase: never sealed, never a hang, no orphan, a readable recording."""

import contextlib
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml

from crescendo.record.reader import open_recording
from handler_repository import HandlerRepository
from whole_runs import Launcher, Session, launching

PHASES_S = {"warm-up": 1.2, "measure": 3.3, "drain": 5.3}
"""When to kill, in seconds after the manifest was written: 2 s of warm-up begin 0.3 s later, 2 s of measure follow."""

SUSPEND_S = 3.9

VICTIMS = {
    "sender": "peer sender",
    "receiver": "peer receiver",
    "inspector": "peer inspector",
    "agent": "peer agent",
    "control broker": "crescendo.control.embedded_broker",
    "conductor": "",
}
EXPERIMENT = {
    "name": "trial",
    "workload": {"senders": 1, "receivers": 1, "rate": 200},
    "phases": {"warmup": "2s", "measure": "2s", "drain": "6s"},
    "inspect": [{"kind": "process"}],
}
MAX_END_S = 20.0
AT_ONCE = 5


def process_of(session: Session, words: str) -> psutil.Process:
    if not words:
        return psutil.Process(session.process.pid)
    return next(process for process in session.family() if words in " ".join(process.cmdline()))


def with_agent(directory: Path) -> dict[str, Any]:
    """An agent whose handler runs, and has forked, when it is killed."""
    repository = HandlerRepository(directory / "handlers")
    repository.write("start_agent/stay", "#!/bin/sh\n(setsid sleep 1000 &)\nsleep 1000\n")
    source = {"from": str(repository.path), "commits": [repository.commit()]}
    (directory / "agent.yml").write_text(yaml.safe_dump({"sources": [source]}))
    return {"agents": [{"name": "a", "config": "agent.yml", "source": str(repository.path)}]}


def handlers_below(directory: Path) -> list[int]:
    """Processes of handlers: their home is below the directory of the run, and our mark is not in their environment."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if process.environ().get("HOME", "").startswith(f"{directory}/"):
                found.append(process.pid)
    return found


def killed(launch: Launcher, directory: Path, victim: str, phase: str) -> str:
    """What is wrong after this kill; empty if nothing is."""
    directory.mkdir()
    experiment = directory / "trial.yml"
    experiment.write_text(yaml.safe_dump(EXPERIMENT | (with_agent(directory) if victim == "agent" else {})))
    session = Launcher(directory).without_analysis(experiment)
    launch.sessions.append(session)
    deadline_s = time.monotonic() + 60
    while not list(session.out.glob("*/manifest.json")):
        assert session.process.poll() is None, session.process.communicate()
        assert time.monotonic() < deadline_s, "never started"
        time.sleep(0.02)
    return _kill_and_look(session, victim, phase)


def _kill_and_look(session: Session, victim: str, phase: str) -> str:
    written_s = (session.run_dir() / "manifest.json").stat().st_mtime
    receiver = process_of(session, VICTIMS["receiver"])
    chosen = process_of(session, VICTIMS[victim])  # now: a look at every process takes long on a busy machine
    if phase == "drain":  # a receiver that stands still: the drain lasts until it goes on
        _sleep_until(written_s + SUSPEND_S)
        receiver.suspend()
    _sleep_until(written_s + PHASES_S[phase])
    if victim == "agent":
        assert handlers_below(session.out.parent), "its handler runs"
    chosen.kill()
    killed_s = time.monotonic()
    with contextlib.suppress(psutil.NoSuchProcess):
        receiver.resume()
    done = session.finish(60)
    took_s = time.monotonic() - killed_s
    while (session.family() or handlers_below(session.out.parent)) and time.monotonic() - killed_s < MAX_END_S:
        time.sleep(0.1)
    recording = open_recording(session.run_dir())
    wrong = []
    if "sealed" in done.stdout or recording.manifest.state.value == "sealed":
        wrong.append("sealed")
    if took_s > MAX_END_S:
        wrong.append(f"took {took_s:.1f} s")
    if session.family() or handlers_below(session.out.parent):
        wrong.append("left processes")
    if recording.damaged:
        wrong.append("damaged")
    if "Traceback" in done.stderr:
        wrong.append(done.stderr)
    return ", ".join(wrong)


def _sleep_until(time_s: float) -> None:
    time.sleep(max(time_s - time.time(), 0))


def test_whatever_is_killed_whenever_the_run_does_not_pass(tmp_path: Path) -> None:
    table = [(victim, phase) for phase in PHASES_S for victim in VICTIMS]
    with launching(tmp_path) as launch, ThreadPoolExecutor(AT_ONCE) as pool:
        found = list(
            pool.map(lambda row: killed(launch, tmp_path / f"{row[0]}-{row[1]}".replace(" ", "-"), *row), table)
        )
    wrong = {row: what for row, what in zip(table, found, strict=True) if what}
    if wrong:
        pytest.fail(str(wrong))
