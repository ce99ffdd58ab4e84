"""How does the conductor talk to one host of a cluster?

Over one ssh connection with plain OpenSSH, to a program that is sent along: requests and answers are lines of JSON.
The command line on the host is always the same; what differs, secrets included, goes through standard input. Keys or an
agent only: nothing asks for a password. No master connection is kept, and ssh ends with this process or with `close`.
"""

import contextlib
import json
import os
import selectors
import shlex
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from crescendo.cluster import remote_program
from crescendo.cluster.cluster_file import ClusterHost
from crescendo.model.errors import ConfigError, LostError
from crescendo.processes.child import close_pipes, launch_child, wait_or_kill
from crescendo.processes.die_with_parent import die_with_parent

_READ_PROGRAM = (
    "import os, sys\n"
    "left, program = int(sys.argv[1]), b''\n"
    "while left:\n"
    "    piece = os.read(0, left)\n"
    "    if not piece: sys.exit(1)\n"
    "    left, program = left - len(piece), program + piece\n"
    "exec(compile(program, 'crescendo-cluster', 'exec'))\n"
)
"""Reads exactly the program and nothing of what follows it."""

_OPTIONS = (
    "BatchMode=yes",
    "ControlMaster=no",
    "ControlPath=none",
    "ConnectTimeout=10",
    "ServerAliveInterval=5",
    "ServerAliveCountMax=3",
    "ClearAllForwardings=yes",
    "RequestTTY=no",
)
_CLOSE_S = 10.0
_NOT_FOUND, _SSH_FAILED = 127, 255
T = TypeVar("T")


class HostSession:
    """One connection to one host. Open it in the main thread; use it in one thread at a time."""

    def __init__(self, host: ClusterHost) -> None:
        self.host = host
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 - closed in close()
        self._buffer = b""
        program = Path(remote_program.__file__).read_bytes()
        command = [host.python, "-I", "-u", "-c", _READ_PROGRAM, str(len(program))]
        try:
            self._process = launch_child(
                _argv(host, command),
                on_fork=die_with_parent(),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._stderr.fileno(),
            )
        except OSError as err:
            self._stderr.close()
            raise ConfigError(f"{host.name}: {err.filename} cannot be started: {err.strerror}") from err
        self._program: bytes | None = program

    def ask(self, action: str, timeout_s: float, contents: Sequence[Path] = (), **request: Any) -> dict[str, Any]:
        """The answer to a request, which the contents of files may follow. ConfigError if the host refuses."""
        line = json.dumps({"action": action, "directory": self.host.directory, **request}) + "\n"
        stdin = self._process.stdin
        assert stdin is not None  # noqa: S101 - it was started with a pipe
        try:
            if self._program is not None:
                stdin.write(self._program)
                self._program = None
            stdin.write(line.encode())
            for file in contents:
                with file.open("rb") as content:
                    shutil.copyfileobj(content, stdin, 1 << 20)
            stdin.flush()
        except (OSError, ValueError):
            raise self._failure() from None
        answer = self._answer(time.monotonic() + timeout_s)
        if "error" in answer:
            raise ConfigError(f"{self.host.name}: {answer['error']}")
        return answer

    def close(self, grace_s: float = _CLOSE_S) -> None:
        """End the connection and the ssh process. Safe to call twice."""
        with contextlib.suppress(OSError):
            if self._process.stdin is not None:
                self._process.stdin.close()
        wait_or_kill(self._process, grace_s)
        close_pipes(self._process)
        self._stderr.close()

    def kill(self) -> None:
        """End ssh at once: a thread that waits for an answer goes on."""
        self._process.kill()

    def _answer(self, deadline_s: float) -> dict[str, Any]:
        stdout = self._process.stdout
        assert stdout is not None  # noqa: S101 - it was started with a pipe
        with selectors.DefaultSelector() as selector:
            selector.register(stdout, selectors.EVENT_READ)
            while b"\n" not in self._buffer:
                if not selector.select(max(deadline_s - time.monotonic(), 0)):
                    raise LostError(f"{self.host.name} does not answer")
                piece = os.read(stdout.fileno(), 65536)
                if not piece:
                    raise self._failure()
                self._buffer += piece
        line, _, self._buffer = self._buffer.partition(b"\n")
        try:
            answer = json.loads(line)
        except ValueError:
            raise ConfigError(
                f"{self.host.name}: its login shell prints {line[:80].decode(errors='replace')!r}; "
                "it must be silent for commands over ssh"
            ) from None
        return answer if isinstance(answer, dict) else {}

    def _failure(self) -> ConfigError | LostError:
        wait_or_kill(self._process, _CLOSE_S)
        self._stderr.seek(0)
        lines = self._stderr.read().decode(errors="replace").strip().splitlines()
        reason = lines[-1].strip() if lines else f"ended with code {self._process.returncode}"
        if self._process.returncode == _SSH_FAILED:
            return ConfigError(f"{self.host.name}: ssh: {reason}")
        if self._process.returncode == _NOT_FOUND:
            return ConfigError(f"{self.host.name}: {reason}; set ansible_python_interpreter to a Python 3.11 or newer")
        return LostError(f"{self.host.name}: the connection ended: {reason}")


def _argv(host: ClusterHost, command: list[str]) -> list[str]:
    if not host.ssh:
        return command
    options = [word for option in _OPTIONS for word in ("-o", option)]
    return ["ssh", *options, *host.ssh, shlex.join(command)]


def on_every(
    hosts: Sequence[ClusterHost], work: Callable[[HostSession], T], *, patient: bool = False
) -> tuple[dict[str, T], dict[str, str]]:
    """Do something on all hosts at the same time: results, and what went wrong, by host.

    Unless `patient`, something that went wrong raises ConfigError or LostError with every sentence.
    """
    sessions: list[HostSession] = []
    results: dict[str, T] = {}
    faults: dict[str, ConfigError | LostError] = {}
    pool = ThreadPoolExecutor(max(len(hosts), 1), "hosts")
    try:
        for host in hosts:
            sessions.append(HostSession(host))
        futures = {session.host.name: pool.submit(work, session) for session in sessions}
        for name, future in futures.items():
            try:
                results[name] = future.result()
            except (ConfigError, LostError) as err:
                faults[name] = err
    except BaseException:
        for session in sessions:
            session.kill()
        raise
    finally:
        pool.shutdown(cancel_futures=True)
        for session in sessions:
            session.close()
    if faults and not patient:
        kind = LostError if all(isinstance(err, LostError) for err in faults.values()) else ConfigError
        raise kind("; ".join(map(str, faults.values())))
    return results, {name: str(err) for name, err in faults.items()}
