"""Are child processes started apart, awaited and ended for sure? With real processes."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from crescendo.control.peer_launch import PeerLaunch
from crescendo.processes.child import (
    ChildProcess,
    Readiness,
    await_ready,
    end_child,
    exits_within,
    first_line,
    launch_child,
    signal_name,
    wait_or_kill,
)
from crescendo.processes.die_with_parent import die_with_parent
from crescendo.processes.log_tail import last_log_lines, last_log_lines_with
from crescendo.run.peer_process import PeerProcess

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
from crescendo.control.peer_launch import PeerLaunch
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
    assert _ends(grandchild)
    end_child(parent, 1)


def test_no_python_code_runs_between_fork_and_exec() -> None:
    """It could wait forever for a lock that another thread held during the fork. Python tells by its hooks."""
    program = """
import os, subprocess
from crescendo.control.peer_launch import PeerLaunch
from crescendo.processes.child import launch_child
from crescendo.processes.die_with_parent import die_with_parent
os.register_at_fork(after_in_child=lambda: os._exit(9))
print(launch_child(["/bin/true"], on_fork=die_with_parent()).wait(20))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout, done.stderr) == ("0\n", "")


def test_a_child_ignores_no_signal_and_has_only_its_standard_files_open() -> None:
    child = launch_child(
        ["/bin/sh", "-c", "echo $(grep SigIgn /proc/self/status) $(ls /proc/$$/fd)"],
        on_fork=die_with_parent(),
        stdout=subprocess.PIPE,
    )
    found = first_line(child, 20).split()
    end_child(child, 1)
    ours = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("SigIgn:"))
    by_python = sum(1 << (number - 1) for number in (signal.SIGPIPE, signal.SIGXFSZ))
    assert found[0] == "SigIgn:"
    assert int(found[1], 16) == int(ours.split()[1], 16) & ~by_python, "what Python ignores, a child must not ignore"
    assert found[2:5] == ["0", "1", "2"]


def test_a_missing_program_is_an_error_of_the_parent_when_it_dies_with_it_too(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as caught:
        launch_child([str(tmp_path / "nothing")], on_fork=die_with_parent(), stdout=subprocess.PIPE)
    assert caught.value.filename == str(tmp_path / "nothing")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may change accounts")
def test_a_child_with_another_account_dies_with_its_parent_too() -> None:
    program = """
import sys, time
from crescendo.control.peer_launch import PeerLaunch
from crescendo.processes.child import launch_child
from crescendo.processes.die_with_parent import die_with_parent
child = launch_child(["/bin/sleep", "600"], on_fork=die_with_parent(), user=61999, group=61998)
print(child.pid, flush=True)
time.sleep(600)
"""
    parent = python(program, stdout=subprocess.PIPE)
    grandchild = psutil.Process(int(first_line(parent, 20)))
    assert set(grandchild.uids()) == {61999}
    assert set(grandchild.gids()) == {61998}
    assert Path(f"/proc/{grandchild.pid}/status").read_text().split("Groups:")[1].split("\n")[0].strip() == ""
    parent.kill()
    assert _ends(grandchild)
    end_child(parent, 1)


def test_the_words_that_are_wanted_are_found_far_above_the_end_of_a_log(tmp_path: Path) -> None:
    log = tmp_path / "log"
    said = ["2026-01-01T10:00:0{0}.1 WARN refused by a", "2026-01-01 10:00:0{0}.2+00:00 [error] refused by b"]
    lines = [line.format(second) for second in range(3) for line in said] + ["restarting"] * 2000
    log.write_text("\n".join(lines))
    assert last_log_lines_with(log, re.compile("REFUSED", re.IGNORECASE)) == "[error] refused by b | WARN refused by a"
    assert last_log_lines_with(log, re.compile("denied")) == ""


def test_the_tail_of_a_log_is_neither_that_of_another_file_nor_of_a_pipe(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("root's own")
    (tmp_path / "link.log").symlink_to(tmp_path / "precious")
    os.mkfifo(tmp_path / "pipe.log")
    assert [last_log_lines(tmp_path / name) for name in ("precious", "link.log", "pipe.log")] == ["root's own", "", ""]


def test_a_log_is_not_written_through_a_symbolic_link(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("untouched")
    (tmp_path / "it.log").symlink_to(tmp_path / "precious")
    with pytest.raises(OSError, match="symbolic link"):
        launch_child(["/bin/echo", "x"], on_fork=None, log=tmp_path / "it.log")
    assert (tmp_path / "precious").read_text() == "untouched"


@pytest.mark.parametrize(
    ("number", "name"),
    [
        (signal.SIGKILL, "SIGKILL"),
        (signal.SIGRTMIN, "SIGRTMIN"),
        (signal.SIGRTMIN + 3, "SIGRTMIN+3"),
        (signal.SIGRTMAX, "SIGRTMAX"),
        (32, "signal 32"),
    ],
)
def test_every_signal_has_a_name(number: int, name: str) -> None:
    assert signal_name(number) == name


def test_the_death_of_a_peer_by_a_real_time_signal_is_reported(tmp_path: Path) -> None:
    peer = PeerProcess("sender-0", "sender", PeerLaunch("mqtt://127.0.0.1:1", "run", "00"), tmp_path, tmp_path / "logs")
    os.kill(peer.pid, signal.SIGRTMIN + 3)
    peer.wait(20)
    assert peer.exit_reason == "killed by SIGRTMIN+3"
    peer.stop()


def _ends(process: psutil.Process) -> bool:
    deadline_s = time.monotonic() + 10
    while time.monotonic() < deadline_s:
        try:
            if process.status() == psutil.STATUS_ZOMBIE:  # nobody may be there to reap it
                return True
        except psutil.NoSuchProcess:
            return True
        time.sleep(0.02)
    return False
