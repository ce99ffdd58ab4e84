"""How are child processes started so that none outlives the run?

Every child is told by the kernel to die with us (PR_SET_PDEATHSIG), has its own session so that Ctrl-C reaches only
the conductor, and is ended by name when the run is over. No shell, ever.
"""

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_STOP_TIMEOUT_S = 2.0
_LAST_WORDS_BYTES = 2000


def die_with_parent() -> Callable[[], None] | None:
    """What a child must run between fork and exec. Resolved before the fork, because after it little is safe."""
    if sys.platform != "linux":
        return None
    prctl = ctypes.CDLL(None).prctl
    parent = os.getpid()

    def ask_kernel() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:  # the parent died before we could ask
            os._exit(1)

    return ask_kernel


class PeerProcess:
    """One peer that this machine runs, with its last words kept."""

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
        """Why it ended, None while it lives."""
        code = self._process.poll()
        if code is None:
            return None
        if code < 0:
            return f"killed by {signal.Signals(-code).name}"
        words = self._log.read_bytes()[-_LAST_WORDS_BYTES:].decode(errors="replace").strip().splitlines()
        return f"exited with code {code}" + (f": {words[-1]}" if words else "")

    def stop(self) -> None:
        """End it if it has not ended, and forget its log if it said nothing."""
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
        """Give it time to end by itself."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout_s)
