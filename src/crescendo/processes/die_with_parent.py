"""How does a child process end when its parent dies?

It asks the kernel to kill it when its parent dies (PR_SET_PDEATHSIG). Starts nothing itself."""

import ctypes
import os
import signal
import sys
from collections.abc import Callable

_PR_SET_PDEATHSIG = 1


def die_with_parent() -> Callable[[], None] | None:
    """A callable for the child to run between fork and exec. Resolved before the fork: few calls are safe after it."""
    if sys.platform != "linux":
        return None
    prctl = ctypes.CDLL(None).prctl
    parent = os.getpid()

    def ask_kernel() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:  # the parent died before the prctl
            os._exit(1)

    return ask_kernel
