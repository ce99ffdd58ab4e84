"""How is the loopback relay started and stopped?

The relay runs in a process of its own, so that it can be stopped, stalled and measured like any other system.
"""

import contextlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec
from msgspec import Struct

from crescendo import __version__
from crescendo.model.errors import ConfigError, PeerError
from crescendo.systems.base import Kind, OnFork
from crescendo.systems.relay import READY

_STOP_TIMEOUT_S = 3.0


class Settings(Struct, frozen=True, forbid_unknown_fields=True):
    """Settings of the relay: with user and password it lets nobody else in."""

    user: str | None = None
    password: str | None = None

    def __post_init__(self) -> None:
        if (self.user is None) != (self.password is None):
            raise ValueError("user and password go together")


class Loopback:
    """A running relay."""

    def __init__(self, settings: Settings, on_fork: OnFork | None) -> None:
        self._settings = settings
        arguments = ["--credentials"] if settings.user is not None else []
        self._process = subprocess.Popen(
            [sys.executable, "-m", "crescendo.systems.relay", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            preexec_fn=on_fork,  # noqa: PLW1509 - one prctl, from the main thread
            start_new_session=True,
        )
        try:
            self._port = self._handshake()
        except BaseException:
            self.stop()
            raise

    @property
    def url(self) -> str:
        who = ""
        if self._settings.user is not None:
            who = f"{quote(self._settings.user, safe='')}:{quote(self._settings.password or '', safe='')}@"
        return f"amqp://{who}127.0.0.1:{self._port}"

    @property
    def facts(self) -> dict[str, Any]:
        return {"kind": "loopback", "version": __version__, "pid": self._process.pid, "port": self._port}

    def stop(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(_STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()

    def _handshake(self) -> int:
        stdin, stdout = self._process.stdin, self._process.stdout
        if stdin is None or stdout is None:
            raise PeerError("the loopback relay has no pipes")
        if self._settings.user is not None:
            stdin.write(json.dumps([self._settings.user, self._settings.password]) + "\n")
            stdin.flush()
        line = stdout.readline()  # the relay either says it is ready or ends, and then this is empty
        if not line.startswith(READY):
            raise PeerError(f"the loopback relay did not start (exit code {self._process.wait(_STOP_TIMEOUT_S)})")
        return int(line.removeprefix(READY))


def _start(settings: dict[str, Any], _directory: Path, on_fork: OnFork | None) -> Loopback:
    try:
        return Loopback(msgspec.convert(settings, Settings), on_fork)
    except msgspec.ValidationError as err:
        raise ConfigError(f"system.settings: {err}; the loopback relay knows user and password") from err


LOOPBACK = Kind("an AMQP 1.0 relay in memory that needs nothing installed", _start)
