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

PHASES = {
    "warm-up": {"warmup": "4s", "measure": "1s", "drain": "1s"},
    "measure": {"warmup": "0s", "measure": "4s", "drain": "1s"},
    "draining": {"warmup": "0s", "measure": "2s", "drain": "60s"},  # its receiver stands still, so that this lasts
}
"""When to kill, in the words of the conductor -> phases of which this one lasts long enough.

A peer that is killed at its beginning ends the run, except for inspectors and agents: without them it continues.
"""

VICTIMS = {
    "sender": "peer sender",
    "receiver": "peer receiver",
    "inspector": "peer inspector",
    "agent": "peer agent",
    "control broker": "crescendo.control.embedded_broker",
    "conductor": "",
}
TOGETHER = ("inspector", "agent")
"""Killed in the same run, the second when the run is known to have lost the first: it goes on without them."""
ROWS = (*((victim,) for victim in VICTIMS if victim not in TOGETHER), TOGETHER)
EXPERIMENT = {
    "name": "trial",
    "workload": {"senders": 1, "receivers": 1, "rate": 200},
}
MAX_END_S = 20.0
TIMEOUT_S = 60.0
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


def killed(launch: Launcher, directory: Path, victims: tuple[str, ...], phase: str) -> str:
    """What is wrong after these kills; empty if nothing is."""
    directory.mkdir()
    experiment = directory / "trial.yml"
    more = {"inspect": [{"kind": "process"}], **with_agent(directory)} if victims == TOGETHER else {}
    experiment.write_text(yaml.safe_dump({**EXPERIMENT, "phases": PHASES[phase], **more}))
    session = Launcher(directory).without_analysis(experiment, "--phases")
    launch.sessions.append(session)
    return _kill_and_look(session, victims, phase)


def wait_for(session: Session, said: str) -> None:
    for line in session.process.stderr or ():
        if line == f"{said}\n":
            return
    pytest.fail(f"it ended before {said}: {session.process.communicate()}")


def wait_for_handler(session: Session) -> None:
    deadline_s = time.monotonic() + TIMEOUT_S
    while not handlers_below(session.out.parent):
        assert time.monotonic() < deadline_s, "its handler does not run"
        time.sleep(0.05)


def _kill_and_look(session: Session, victims: tuple[str, ...], phase: str) -> str:
    wait_for(session, "phase: about to start")
    receiver = process_of(session, VICTIMS["receiver"])
    chosen = [process_of(session, VICTIMS[victim]) for victim in victims]  # now: this takes long on a busy machine
    if phase == "draining":
        wait_for(session, "phase: measure")
        receiver.suspend()
    wait_for(session, f"phase: {phase}")
    if "agent" in victims:
        wait_for_handler(session)
    for number, process in enumerate(chosen):
        if number:
            wait_for(session, f"lost: {victims[number - 1]}")
        process.kill()
        killed_s = time.monotonic()
    with contextlib.suppress(psutil.NoSuchProcess):
        receiver.resume()
    done = session.finish(TIMEOUT_S)
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
    peers = [victim for victim in victims if VICTIMS[victim].startswith("peer")]
    if peers and f"lost {peers[0]}" not in recording.manifest.reason:
        wrong.append(recording.manifest.reason)
    lost = {peer.role for peer in recording.manifest.peers if peer.ended == "lost"}
    wrong += [f"the {victim} is not lost" for victim in peers if victim not in lost]
    return ", ".join(wrong)


def test_whatever_is_killed_whenever_the_run_does_not_pass(tmp_path: Path) -> None:
    table = [(victims, phase) for phase in PHASES for victims in ROWS]
    with launching(tmp_path) as launch, ThreadPoolExecutor(AT_ONCE) as pool:
        found = list(
            pool.map(lambda row: killed(launch, tmp_path / f"{row[0][0]}-{row[1]}".replace(" ", "-"), *row), table)
        )
    wrong = {row: what for row, what in zip(table, found, strict=True) if what}
    if wrong:
        pytest.fail(str(wrong))
