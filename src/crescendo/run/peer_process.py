"""How are peer processes started so that none outlives the run?

The kernel kills every child when its parent dies (PR_SET_PDEATHSIG). Ctrl-C reaches only the conductor, which stops
each child explicitly when the run is over.
"""

import contextlib
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from crescendo.control.peer_launch import PeerLaunch
from crescendo.processes.child import end_child, exits_within, launch_child, signal_name, write_line
from crescendo.processes.die_with_parent import die_with_parent
from crescendo.processes.log_tail import log_tail

_STOP_TIMEOUT_S = 2.0
_PEER = (sys.executable, "-m", "crescendo.cli.launched_peer")


class PeerProcess:
    """One peer process on this machine, with its log."""

    def __init__(
        self,
        peer: str,
        role: str,
        launch: PeerLaunch,
        data: Path,
        log_dir: Path,
        command: Callable[[Sequence[str]], list[str]] = list,
    ) -> None:
        """It writes its part of the recording to `data`. `command` may place it on a host of the lab."""
        self.peer = peer
        log_dir.mkdir(parents=True, exist_ok=True)
        self._log = log_dir / f"{peer}.log"
        self._process = launch_child(
            command([*_PEER, role, peer, str(data)]),
            on_fork=die_with_parent(),
            log=self._log,
            stdin=subprocess.PIPE,
        )
        write_line(self._process, launch.to_line())  # secrets: arguments can be read by every account

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def exit_reason(self) -> str | None:
        """Why it exited; None while it is running."""
        code = self._process.poll()
        if code is None:
            return None
        if code < 0:
            return f"killed by {signal_name(-code)}"
        lines = log_tail(self._log)
        return f"exited with code {code}" + (f": {lines[-1]}" if lines else "")

    def stop(self) -> None:
        """Terminate it if it is still running, and delete its log if that is empty."""
        end_child(self._process, _STOP_TIMEOUT_S)
        with contextlib.suppress(OSError):
            if self._log.stat().st_size == 0:
                self._log.unlink()
                self._log.parent.rmdir()  # only when it is the last one

    def wait(self, timeout_s: float) -> None:
        """Give it time to exit by itself."""
        exits_within(self._process, timeout_s)
