"""How is a child process started, awaited and ended, so that it never outlives its parent?

From a list of arguments, never by a shell, with nothing to read unless the caller writes to it, and in a session of its
own, so that Ctrl-C reaches the parent only. `on_fork` makes it die with its parent (`die_with_parent`). No Python code
runs between fork and exec, so other threads may run. Names no program: what to start, and when it is ready, is up to
the caller.
"""

import contextlib
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import Enum
from pathlib import Path

from crescendo.processes.die_with_parent import DieWithParent

ChildProcess = subprocess.Popen[bytes]
OnFork = DieWithParent
"""What a child does between fork and exec."""

_POLL_S = 0.1
_LOG_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC


class Readiness(Enum):
    """How waiting for a child ended."""

    READY = "ready"
    ENDED = "ended"  # a child exited before it was ready
    TIMED_OUT = "timed out"


def launch_child(
    argv: Sequence[str],
    *,
    on_fork: OnFork | None,
    log: Path | None = None,
    stdin: int = subprocess.DEVNULL,
    stdout: int | None = None,
    stderr: int | None = None,
    env: Mapping[str, str] | None = None,
    cwd: Path | str | None = None,
    user: int | None = None,
    group: int | None = None,
    umask: int = -1,
) -> ChildProcess:
    """Start a child. With a log, everything that it prints is appended there.

    With a user, it has the rights of that account alone, without further groups. Call from the main thread: to the
    kernel, the parent dies when the forking thread ends. Raises OSError if it cannot be started.
    """
    with _opened(log) as file, contextlib.ExitStack() as pipe:
        report, report_fd = None, None
        if on_fork is not None and sys.platform == "linux":
            report, report_fd = os.pipe()
            pipe.callback(os.close, report)
            command = on_fork.wrap(argv, user=user, group=group, report_fd=report_fd)
            user = group = None
        else:
            command = list(argv)
        try:
            child = subprocess.Popen(
                command,
                stdin=stdin,
                stdout=stdout if file is None else file,
                stderr=stderr if file is None else file,
                env=env,
                cwd=cwd,
                user=user,
                group=group,
                extra_groups=None if user is None else [],
                umask=umask,
                pass_fds=() if report_fd is None else (report_fd,),
                start_new_session=True,
            )
        finally:
            if report_fd is not None:
                os.close(report_fd)
        if report is not None:
            _await_exec(child, report, argv[0])
        return child


def _await_exec(child: ChildProcess, report: int, program: str) -> None:
    """Wait until the child has become the program; raise if it could not."""
    try:
        error = os.read(report, 16)
        if error:
            raise OSError(int(error), os.strerror(int(error)), program)
    except BaseException:
        child.kill()
        child.wait()
        close_pipes(child)
        raise


@contextlib.contextmanager
def _opened(log: Path | None) -> Iterator[int | None]:
    """The log, for appending. Never through a symbolic link: the directory may belong to the account of the child."""
    if log is None:
        yield None
        return
    fd = os.open(log, _LOG_FLAGS, 0o644)
    try:
        yield fd
    finally:
        os.close(fd)


def signal_name(number: int) -> str:
    """The name of a signal. Real-time signals have no names in Python, except the first and the last."""
    with contextlib.suppress(ValueError):
        return signal.Signals(number).name
    if signal.SIGRTMIN < number < signal.SIGRTMAX:
        return f"SIGRTMIN+{number - signal.SIGRTMIN}"
    return f"signal {number}"


def await_ready(
    children: Sequence[ChildProcess], is_ready: Callable[[], bool], *, deadline_s: float, poll_s: float = _POLL_S
) -> Readiness:
    """Wait until it is ready, one of the children has exited, or the (monotonic) deadline has passed."""
    while True:
        if any(child.poll() is not None for child in children):
            return Readiness.ENDED
        if is_ready():
            return Readiness.READY
        if time.monotonic() > deadline_s:
            exited = any(child.poll() is not None for child in children)
            return Readiness.ENDED if exited else Readiness.TIMED_OUT
        time.sleep(poll_s)


def first_line(child: ChildProcess, timeout_s: float) -> str:
    """The first line that a child with a pipe prints; empty if it prints none in time.

    The child writes its line in a single write, so the line is either complete or absent.
    """
    if child.stdout is None:
        return ""
    with selectors.DefaultSelector() as selector:
        selector.register(child.stdout, selectors.EVENT_READ)
        return child.stdout.readline().decode(errors="replace").strip() if selector.select(timeout_s) else ""


def write_line(child: ChildProcess, text: str) -> None:
    """Write one line to a child with a pipe, and close the pipe. A child that has ended does not matter here."""
    with contextlib.suppress(OSError):
        if child.stdin is not None:
            child.stdin.write(f"{text}\n".encode())
            child.stdin.close()


def end_child(child: ChildProcess, grace_s: float) -> None:
    """Terminate a child; kill it if it does not exit in time. Closes its pipes. Safe to call twice."""
    child.terminate()
    wait_or_kill(child, grace_s)
    close_pipes(child)


def wait_or_kill(child: ChildProcess, timeout_s: float) -> None:
    """Give a child time to exit by itself, then kill it."""
    if not exits_within(child, timeout_s):
        child.kill()
        child.wait()


def exits_within(child: ChildProcess, timeout_s: float) -> bool:
    try:
        child.wait(timeout_s)
    except subprocess.TimeoutExpired:
        return False
    return True


def close_pipes(child: ChildProcess) -> None:
    for pipe in (child.stdin, child.stdout, child.stderr):
        with contextlib.suppress(OSError):  # a write that was still buffered has no reader any more
            if pipe is not None:
                pipe.close()
