"""What is said, and what is kept, when a process that a run needs is killed?"""

import contextlib
import shlex
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import psutil
import pytest

from crescendo.model.verdict import Outcome
from crescendo.record.reader import open_recording
from crescendo.record.summary import Summary
from tiny_recordings import Tiny
from whole_runs import Launcher, Session

INTERRUPTED_CALL = """
import os, signal, threading
from crescendo.pipeline.spark.java import use_java
from crescendo.pipeline.spark.session import close_session, open_session

use_java()
starting = threading.Thread(target=open_session)  # in a thread, as a run starts it
starting.start()
starting.join()
spark = open_session()
threading.Timer(1.0, os.kill, (os.getpid(), signal.SIGINT)).start()
try:
    spark._jvm.java.lang.Thread.sleep(60_000)
except KeyboardInterrupt:
    close_session(spark)
    print("interrupted")
"""


def child(session: Session, words: str) -> psutil.Process:
    """The process of the session whose command line contains these words."""
    return next(process for process in session.family() if words in " ".join(process.cmdline()))


def analysis(launch: Launcher, run_dir: Path) -> Session:
    """An analysis that has begun to count."""
    tiny = Tiny()
    tiny.carry(2000)
    tiny.write(run_dir)
    session = launch("analyze", str(run_dir))
    for line in session.process.stderr or ():
        if "counting" in line:
            return session
    pytest.fail("never counted")


def kill_jvm(session: Session) -> None:
    """Kill Spark's Java process, as soon as there is one."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        with contextlib.suppress(psutil.Error, StopIteration):
            child(session, "org.apache.spark.deploy.SparkSubmit").kill()
            return
        time.sleep(0.01)
    pytest.fail("Spark was never started")


def assert_lost_to_a_kill(session: Session, run_dir: Path, beginning: str) -> None:
    """One sentence says what was killed, and how to get the verdict of a recording that is whole."""
    done = session.finish()
    assert done.returncode == 3, done.stderr
    assert "Traceback" not in done.stderr
    (sentence,) = [line for line in done.stderr.splitlines() if "crescendo:" in line]
    assert sentence == (
        f"crescendo: {beginning}: Spark's Java process was killed (signal 9), as the kernel does when memory runs out; "
        f"the recording is kept; run: crescendo analyze {shlex.quote(str(run_dir))}"
    )
    assert not open_recording(run_dir).damaged


def test_the_death_of_the_jvm_in_an_analysis_is_one_sentence(launch: Launcher, tmp_path: Path) -> None:
    run_dir = tmp_path / "a run"
    session = analysis(launch, run_dir)
    kill_jvm(session)
    assert_lost_to_a_kill(session, run_dir, f"the analysis of {run_dir} did not finish")


def test_the_death_of_the_jvm_while_spark_starts_is_one_sentence(launch: Launcher, tmp_path: Path) -> None:
    run_dir = tmp_path / "a run"
    tiny = Tiny()
    tiny.carry(10)
    tiny.write(run_dir)
    session = launch("analyze", str(run_dir))
    kill_jvm(session)
    assert_lost_to_a_kill(session, run_dir, "Spark did not start")


def test_the_death_of_the_jvm_in_a_run_leaves_its_recording(launch: Launcher, experiment: Callable[..., Path]) -> None:
    phases = {"warmup": "500ms", "measure": "4s"}
    session = launch("run", str(experiment(phases=phases)), "--no-fsync")
    session.wait_for_measure()
    kill_jvm(session)
    assert_lost_to_a_kill(session, session.run_dir(), f"the analysis of {session.run_dir()} did not finish")


@pytest.mark.soak  # the suite interrupts a whole analysis
def test_ctrl_c_during_a_call_into_spark_prints_nothing() -> None:
    """An analysis waits for Spark most of the time; here it certainly does."""
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED_CALL], capture_output=True, text=True, timeout=120, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "interrupted\n", "")


def test_a_run_without_its_control_broker_keeps_what_was_recorded(
    launch: Launcher, experiment: Callable[..., Path]
) -> None:
    path = experiment(phases={"warmup": "500ms", "measure": "60s"})
    session = launch("run", str(path), "--no-fsync", "--json")
    session.wait_for_measure()
    child(session, "crescendo.control.embedded_broker").kill()
    done = session.finish()
    assert done.returncode == 3, done.stderr
    assert "Traceback" not in done.stderr
    recording = open_recording(session.run_dir())
    assert not recording.damaged
    assert recording.rows("sent") > 500
    assert recording.rows("received") > 500
    assert {peer.ended for peer in recording.manifest.peers} == {"lost"}
    summary = msgspec.json.decode(done.stdout, type=Summary)  # nothing else reaches standard output
    assert summary.run == session.run_dir().name
    assert summary.verdict.outcome is Outcome.INVALID
    assert any("control broker" in reason for check in summary.verdict.checks for reason in check.reasons)
    assert summary.total.sent == recording.rows("sent")
