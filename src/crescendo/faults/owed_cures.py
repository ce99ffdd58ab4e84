"""Which cures are owed, and how does the guardian learn of them?

A cure is written to the guardian before its fault begins. If the guardian was killed, a new one is started and given
everything that is owed. Carries out no cure itself.
"""

import contextlib
import os
import sys
import threading
from subprocess import PIPE

import msgspec

from crescendo.faults.action import Cure
from crescendo.faults.control_groups import remove_abandoned
from crescendo.faults.guardian import NOTHING_OWED, GuardLine
from crescendo.faults.loop_disk import remove_abandoned_disks
from crescendo.model.errors import LostError
from crescendo.processes.child import ChildProcess, close_pipes, exits_within, first_line, launch_child

_START_TIMEOUT_S = 30.0
_EXIT_TIMEOUT_S = 5.0
_GUARDIAN = "crescendo.faults.guardian"


class OwedCures:
    """The cures of the faults that are active now. Safe to use from several threads."""

    def __init__(self) -> None:
        remove_abandoned()
        remove_abandoned_disks()
        self._lock = threading.Lock()
        self._owed: dict[int, Cure] = {}
        self._guardian = _start_guardian()

    @property
    def guardian_pid(self) -> int:
        return self._guardian.pid

    def owe(self, number: int, cure: Cure) -> None:
        """From now on, somebody must carry out this cure."""
        with self._lock:
            self._owed[number] = cure
            self._tell(GuardLine(number, cure))

    def settle(self, number: int) -> None:
        """It was carried out."""
        with self._lock:
            if self._owed.pop(number, None) is not None:
                self._tell(GuardLine(number))

    def watch(self) -> None:
        """Start another guardian if it has died."""
        with self._lock:
            if self._guardian.poll() is not None:
                self._replace_guardian()

    def close(self) -> None:
        """End the guardian; what is still owed, it carries out."""
        with self._lock:
            if not self._owed:
                self._tell(GuardLine(NOTHING_OWED))
            with contextlib.suppress(OSError):
                if self._guardian.stdin is not None:
                    self._guardian.stdin.close()
            if not exits_within(self._guardian, _EXIT_TIMEOUT_S):
                self._guardian.kill()
                self._guardian.wait()
            close_pipes(self._guardian)

    def _tell(self, line: GuardLine) -> None:
        try:
            self._write(line)
        except OSError:
            self._replace_guardian()  # and tell it everything, this line too

    def _replace_guardian(self) -> None:
        self._guardian.kill()
        self._guardian.wait()
        close_pipes(self._guardian)
        self._guardian = _start_guardian()
        for number, cure in self._owed.items():
            self._write(GuardLine(number, cure))

    def _write(self, line: GuardLine) -> None:
        assert self._guardian.stdin is not None  # noqa: S101 - it was started with a pipe
        os.write(self._guardian.stdin.fileno(), msgspec.json.encode(line) + b"\n")


def _start_guardian() -> ChildProcess:
    """Not tied to us: it must outlive us."""
    guardian = launch_child([sys.executable, "-m", _GUARDIAN], on_fork=None, stdin=PIPE, stdout=PIPE)
    if first_line(guardian, _START_TIMEOUT_S) != "ready":
        guardian.kill()
        guardian.wait()
        close_pipes(guardian)
        raise LostError("the guardian of the faults did not start; none was caused")
    return guardian
