"""How are peer processes started so that none outlives the run?

The kernel kills every child when its parent dies (PR_SET_PDEATHSIG). Each child has its own session, so that Ctrl-C
reaches only the conductor, and is stopped explicitly when the run is over. Never uses a shell.
"""

import contextlib
import signal
import subprocess
import sys
from pathlib import Path

from crescendo.processes.die_with_parent import die_with_parent

_STOP_TIMEOUT_S = 2.0
_LOG_TAIL_BYTES = 2000


class PeerProcess:
    """One peer process on this machine, with its log."""

    def __init__(self, peer: str, role: str, control_url: str, log_dir: Path) -> None:
        self.peer = peer
        log_dir.mkdir(parents=True, exist_ok=True)
        self._log = log_dir / f"{peer}.log"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "crescendo.cli.main", "peer", role, "--id", peer, "--control", control_url],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                preexec_fn=die_with_parent(),  # noqa: PLW1509 - one prctl, from the main thread
                start_new_session=True,
            )

    @property
    def exit_reason(self) -> str | None:
        """Why it exited; None while it is running."""
        code = self._process.poll()
        if code is None:
            return None
        if code < 0:
            return f"killed by {signal.Signals(-code).name}"
        lines = self._log.read_bytes()[-_LOG_TAIL_BYTES:].decode(errors="replace").strip().splitlines()
        return f"exited with code {code}" + (f": {lines[-1]}" if lines else "")

    def stop(self) -> None:
        """Terminate it if it is still running, and delete its log if that is empty."""
        with contextlib.suppress(ProcessLookupError):
            self._process.terminate()
        try:
            self._process.wait(_STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        with contextlib.suppress(OSError):
            if self._log.stat().st_size == 0:
                self._log.unlink()
                self._log.parent.rmdir()  # only when it is the last one

    def wait(self, timeout_s: float) -> None:
        """Give it time to exit by itself."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout_s)
