"""How does a load process run a JVM with JMS clients in it?

As a child that dies with it. Settings, passwords and due times go through its stdin, records come from its stdout, and
what it logs goes where the log of this process goes. Reading and writing never block. What the records mean is up to
the engines.
"""

import contextlib
import fcntl
import os
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import psutil

from crescendo.load.jms.child_records import (
    HELLO,
    MAGIC,
    READY,
    VERSION,
    Closing,
    RecordReader,
    Records,
    hello_command,
    stop_command,
)
from crescendo.model.errors import PeerError
from crescendo.processes.child import close_pipes, launch_child, signal_name, wait_or_kill
from crescendo.processes.die_with_parent import die_with_parent

STOP_TIMEOUT_S = 2.0
_PIPE_BYTES = 1 << 20
_HEAP = "512m"
_POLL_S = 0.005


class JvmChild:
    """One JVM, with one or many connections."""

    def __init__(
        self, command: Sequence[str], role: str, tag: int, settings: Sequence[Mapping[str, str]], directory: Path
    ):
        """`command` starts Java with the class path; `directory` is made for its temporary files."""
        self.ready: set[int] = set()
        self.connections = len(settings)
        self.ended: str | None = None  # why it is gone
        self._directory = directory
        self._reader = RecordReader()
        self._outgoing = bytearray()
        self._said_hello = False
        self._cpu_s = 0.0
        directory.mkdir(parents=True, exist_ok=True)
        self._started_ns = time.monotonic_ns()
        try:
            self._process = launch_child(
                [
                    command[0],
                    f"-Xmx{_HEAP}",
                    "-XX:-UsePerfData",
                    f"-Djava.io.tmpdir={directory}",
                    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
                    *command[1:],
                ],
                on_fork=die_with_parent(),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
            )
        except OSError as err:
            shutil.rmtree(directory, ignore_errors=True)
            raise PeerError(f"the JVM of the JMS client cannot be started: {err.strerror or err}") from err
        if self._process.stdin is None or self._process.stdout is None:
            raise PeerError("the JVM of the JMS client has no pipes")
        self._stdin, self._stdout = self._process.stdin.fileno(), self._process.stdout.fileno()
        for fd in (self._stdin, self._stdout):
            os.set_blocking(fd, False)
            with contextlib.suppress(OSError):  # more than an account may have: the default has to do
                fcntl.fcntl(fd, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        self._facts = psutil.Process(self._process.pid)
        self.write(hello_command(role, tag, settings))

    @property
    def pid(self) -> int:
        return self._process.pid

    def fileno(self) -> int:
        """Readable when there are records."""
        return self._stdout

    @property
    def writing(self) -> bool:
        """Whether commands wait for room in the pipe."""
        return bool(self._outgoing)

    @property
    def stdin_fileno(self) -> int:
        return self._stdin

    def write(self, command: bytes) -> None:
        self._outgoing += command
        self.flush()

    def flush(self) -> None:
        if self.ended is not None:
            self._outgoing.clear()
        while self._outgoing:
            try:
                written = os.write(self._stdin, self._outgoing)
            except BlockingIOError:
                return
            except OSError:  # reading finds out why
                self._outgoing.clear()
                return
            del self._outgoing[:written]

    def read(self) -> Iterator[Records | Closing]:
        """What arrived, without HELLO and READY, which are noted here."""
        self.flush()
        while self.ended is None:
            try:
                octets = os.read(self._stdout, _PIPE_BYTES)
            except BlockingIOError:
                return
            if not octets:
                self.ended = self._why_it_ended()
                return
            for found in self._reader.feed(octets):
                if isinstance(found, Closing):
                    yield found
                    continue
                records = found
                if not self._said_hello:
                    self._check_hello(records)
                    records = records[1:]
                if len(self.ready) < self.connections:
                    is_ready = records["type"] == READY
                    self.ready.update(records["index"][is_ready].tolist())
                    records = records[~is_ready]
                if len(records):
                    yield records

    @property
    def cpu_seconds(self) -> float:
        """The CPU time of the JVM, all threads included."""
        with contextlib.suppress(psutil.Error):
            times = self._facts.cpu_times()
            self._cpu_s = times.user + times.system
        return self._cpu_s

    def close(self, timeout_s: float = STOP_TIMEOUT_S) -> None:
        """Ask it to close its connections, and end it. What it still sends is read and dropped."""
        _ = self.cpu_seconds
        self.write(stop_command())
        deadline_s = time.monotonic() + timeout_s
        while self.ended is None and time.monotonic() < deadline_s:
            with contextlib.suppress(PeerError):
                for _found in self.read():
                    pass
            time.sleep(_POLL_S)
        self.ended = self.ended or "closed by us"
        wait_or_kill(self._process, 0.0 if time.monotonic() > deadline_s else 1.0)
        close_pipes(self._process)
        shutil.rmtree(self._directory, ignore_errors=True)

    def _check_hello(self, records: Records) -> None:
        """The first record: who it is, and that its clock is ours."""
        magic, version, now_ns = records["words"][0][:3].tolist()
        if records["type"][0] != HELLO or magic != MAGIC or version != VERSION:
            raise PeerError(
                "the JVM of the JMS client is of another version; run: crescendo system install jms-clients"
            )
        if not self._started_ns <= now_ns <= time.monotonic_ns():
            raise PeerError("the JVM's System.nanoTime is not the monotonic clock of this machine; use another Java")
        self._said_hello = True

    def _why_it_ended(self) -> str:
        code = self._process.poll()
        if code is None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                code = self._process.wait(1.0)
        how = "ended" if code is None else f"was killed by {signal_name(-code)}" if code < 0 else f"exited with {code}"
        return f"the JVM of the JMS client {how}; see the log of this peer"
