"""Are child processes started apart, awaited and ended for sure? With real processes."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from crescendo.processes.child import (
    ChildProcess,
    Readiness,
    await_ready,
    end_child,
    exits_within,
    first_line,
    launch_child,
    wait_or_kill,
)
from crescendo.processes.die_with_parent import die_with_parent
from crescendo.processes.logs import last_log_lines

STUBBORN = (
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(600)"
)


def python(code: str, **options: object) -> ChildProcess:
    return launch_child([sys.executable, "-c", code], on_fork=die_with_parent(), **options)  # type: ignore[arg-type]


def test_a_child_has_a_session_of_its_own_and_nothing_to_read() -> None:
    child = python("import os, sys; print(os.getsid(0), repr(sys.stdin.read()), flush=True)", stdout=subprocess.PIPE)
    assert first_line(child, 20) == f"{child.pid} ''"
    assert child.wait(20) == 0
    end_child(child, 1)


def test_everything_it_prints_is_appended_to_its_log(tmp_path: Path) -> None:
    log = tmp_path / "it.log"
    log.write_text("before\n")
    child = python("import sys; print('out', flush=True); print('err', file=sys.stderr)", log=log)
    assert child.wait(20) == 0
    assert last_log_lines(log) == "before | out | err"


def test_no_shell_reads_its_arguments(tmp_path: Path) -> None:
    log = tmp_path / "it.log"
    child = launch_child(["/bin/echo", "$HOME; false", "*"], on_fork=None, log=log)
    assert child.wait(20) == 0
    assert log.read_text() == "$HOME; false *\n"


def test_a_program_that_does_not_exist_is_an_error_of_the_parent(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        launch_child([str(tmp_path / "nothing")], on_fork=None)


def test_a_child_that_ignores_sigterm_is_killed_after_its_grace() -> None:
    child = python(STUBBORN, stdout=subprocess.PIPE)
    assert first_line(child, 20) == "up"
    began = time.monotonic()
    end_child(child, 0.3)
    assert child.returncode == -signal.SIGKILL
    assert 0.3 <= time.monotonic() - began < 10
    assert child.stdout is not None
    assert child.stdout.closed
    end_child(child, 0.3)  # again: nothing to do


def test_a_stopped_child_ends_too() -> None:
    child = python("import time; print('up', flush=True); time.sleep(600)", stdout=subprocess.PIPE)
    assert first_line(child, 20) == "up"
    os.kill(child.pid, signal.SIGSTOP)
    end_child(child, 0.2)
    assert child.returncode in {-signal.SIGKILL, -signal.SIGTERM}


def test_a_child_that_exits_in_time_is_not_killed() -> None:
    child = python("import sys; sys.stdin.read(); sys.exit(7)", stdin=subprocess.PIPE)
    assert not exits_within(child, 0.05)
    assert child.stdin is not None
    child.stdin.close()
    wait_or_kill(child, 20)
    assert child.returncode == 7


def test_waiting_ends_when_it_is_ready_has_ended_or_the_time_is_over() -> None:
    child = python("import time; time.sleep(600)")
    answers = iter([False, False, True])
    soon = time.monotonic() + 20
    assert await_ready([child], lambda: next(answers), deadline_s=soon, poll_s=0.01) is Readiness.READY
    past = time.monotonic()
    assert await_ready([child], lambda: False, deadline_s=past, poll_s=0.01) is Readiness.TIMED_OUT
    child.kill()
    assert await_ready([child], lambda: False, deadline_s=soon, poll_s=0.01) is Readiness.ENDED
    assert await_ready([child], lambda: True, deadline_s=soon, poll_s=0.01) is Readiness.ENDED, (
        "who answers is not ours"
    )
    end_child(child, 1)


def test_a_silent_child_has_no_first_line() -> None:
    child = python("import time; time.sleep(600)", stdout=subprocess.PIPE)
    assert first_line(child, 0.1) == ""
    end_child(child, 0.1)


def test_a_child_dies_with_its_parent() -> None:
    program = """
import sys, time
from crescendo.processes.child import launch_child
from crescendo.processes.die_with_parent import die_with_parent
child = launch_child([sys.executable, "-c", "import time; time.sleep(600)"], on_fork=die_with_parent())
print(child.pid, flush=True)
time.sleep(600)
"""
    parent = python(program, stdout=subprocess.PIPE)
    grandchild = psutil.Process(int(first_line(parent, 20)))
    assert grandchild.is_running()
    parent.kill()
    psutil.wait_procs([grandchild], timeout=10)
    assert not grandchild.is_running() or grandchild.status() == psutil.STATUS_ZOMBIE
    end_child(parent, 1)
