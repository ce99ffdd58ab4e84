"""How does the agent see one handler that runs?

As the messages of its guardian: started, events, ended. A guardian that says nothing at its end was killed; then what
the handler left has become ours, and is ended here. Waits for nothing; the agent polls.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from crescendo.agent import handler_guardian
from crescendo.model.errors import PeerError
from crescendo.processes.child import close_pipes, launch_child

GUARDIAN_KILLED = "guardian"
_READ_BYTES = 1 << 20
_MAX_LINE_BYTES = 64 << 20
_POLL_S = 0.01
_END_S = 5.0


@dataclass(frozen=True)
class HandlerBounds:
    """What the kernel and the guardian hold a handler to."""

    time_s: float
    output: int
    memory: int
    files: int
    processes: int
    events: int


@dataclass(frozen=True)
class HandlerStart:
    """It runs: its process, and when that began on the monotonic clock."""

    pid: int
    t_ns: int


@dataclass(frozen=True)
class HandlerEvent:
    """One line that it wrote to its event pipe."""

    content: dict[str, Any]
    t_ns: int


@dataclass(frozen=True)
class HandlerResult:
    """How it ended. A reason says what ended it, other than itself; then the code is that of the kill."""

    code: int
    t_ns: int
    reason: str = ""
    left: int = 0  # processes that it had beside itself at the end
    output: str = ""
    dropped: int = 0  # events

    @property
    def is_good(self) -> bool:
        return self.code == 0 and not self.reason


@dataclass(frozen=True)
class HandlerFailure:
    """Its program could not be executed."""

    reason: str


HandlerMessage = HandlerStart | HandlerEvent | HandlerResult | HandlerFailure


class HandlerProcess:
    """One handler and its guardian."""

    def __init__(
        self,
        argv: Sequence[str],
        *,
        cwd: Path,
        env: Mapping[str, str],
        parameters: str,
        bounds: HandlerBounds,
        owed_after: int | None = None,
    ) -> None:
        """Call from the main thread. Raises OSError if not even the guardian can be started.

        With `owed_after`, the guardian of another handler, it is a cure: it runs only if this process is killed.
        """
        self._guardian = launch_child(
            [sys.executable, "-I", "-S", handler_guardian.__file__],
            on_fork=None,  # it must outlive the agent for as long as it takes to end the handler
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        self._unread = b""
        self.ended = False
        spec = {
            "argv": list(argv),
            "cwd": str(cwd),
            "env": dict(env),
            "parameters": parameters,
            "limits": vars(bounds),
            **({} if owed_after is None else {"owed_after": owed_after}),
        }
        pipe = self._guardian.stdin
        if pipe is None or self._guardian.stdout is None:
            raise OSError("a guardian has pipes")
        with contextlib.suppress(OSError):  # if it was killed, the end of its messages says so
            pipe.write(json.dumps(spec).encode() + b"\n")
            pipe.flush()
        os.set_blocking(self._guardian.stdout.fileno(), False)

    @property
    def guardian_pid(self) -> int:
        return self._guardian.pid

    def stop(self) -> None:
        """Ask the guardian to end it; its result follows."""
        with contextlib.suppress(OSError):
            if self._guardian.stdin is not None:
                self._guardian.stdin.close()

    def settle(self) -> None:
        """A cure is not owed any more: end its guardian."""
        with contextlib.suppress(OSError):
            if self._guardian.stdin is not None:
                self._guardian.stdin.write(b"settled\n")
                self._guardian.stdin.flush()
        self._end()

    def messages(self) -> list[HandlerMessage]:
        """What happened since the last call."""
        if self.ended:
            return []
        content, is_over = self._read()
        *lines, self._unread = (self._unread + content).split(b"\n")
        found = [_message(json.loads(line)) for line in lines]
        if any(isinstance(message, HandlerResult | HandlerFailure) for message in found):
            self._end()
        elif is_over or len(self._unread) > _MAX_LINE_BYTES:
            self._end()
            found.append(HandlerResult(-signal.SIGKILL, time.monotonic_ns(), GUARDIAN_KILLED))
        return found

    def _read(self) -> tuple[bytes, bool]:
        """What can be read now, and whether nothing more will come."""
        content = b""
        pipe = self._guardian.stdout
        while pipe is not None and len(content) < _READ_BYTES:
            piece = pipe.read(_READ_BYTES)
            if piece is None:
                return content, False
            if not piece:
                return content, True
            content += piece
        return content, False

    def _end(self) -> None:
        self.ended = True
        close_pipes(self._guardian)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._guardian.wait(_END_S)
        if self._guardian.poll() is None:
            self._guardian.kill()
            self._guardian.wait()


def run_to_end(process: HandlerProcess, while_waiting: Callable[[], None]) -> HandlerResult:
    """The result of a program. `while_waiting` is called every few milliseconds, and may raise to end it."""
    try:
        while True:
            for message in process.messages():
                if isinstance(message, HandlerResult):
                    return message
                if isinstance(message, HandlerFailure):
                    raise PeerError(message.reason)
            while_waiting()
            time.sleep(_POLL_S)
    finally:
        end_now([process])


def end_now(processes: Sequence[HandlerProcess]) -> list[HandlerResult]:
    """End them all and wait until they have; their results, for those that had none yet."""
    for process in processes:
        process.stop()
    results = []
    for process in processes:
        deadline_s = time.monotonic() + _END_S
        while not process.ended and time.monotonic() < deadline_s:
            results += [message for message in process.messages() if isinstance(message, HandlerResult)]
            time.sleep(_POLL_S)
    return results


def end_strays(known: Sequence[int]) -> int:
    """End the orphans that became children of this process because their guardian was killed; how many there were."""
    strays = [child for child in psutil.Process().children() if child.pid not in known]
    found = [process for stray in strays for process in (stray, *_below(stray))]
    for process in found:
        with contextlib.suppress(psutil.Error):
            process.kill()
    for stray in strays:
        with contextlib.suppress(ChildProcessError, OSError):
            os.waitpid(stray.pid, 0)
    return len(found)


def _below(process: psutil.Process) -> list[psutil.Process]:
    try:
        return process.children(recursive=True)
    except psutil.Error:
        return []


def _message(content: dict[str, Any]) -> HandlerMessage:
    if "failed" in content:
        return HandlerFailure(f"it cannot be executed: {os.strerror(content['failed'])}")
    if "started" in content:
        return HandlerStart(content["started"], content["t_ns"])
    if "event" in content:
        return HandlerEvent(content["event"], content["t_ns"])
    return HandlerResult(
        content["ended"], content["t_ns"], content["reason"], content["left"], content["output"], content["dropped"]
    )  # fmt: skip
