"""How is a child process ended when its parent dies?

The kernel is asked to kill the child when its parent dies (PR_SET_PDEATHSIG). Starts nothing itself."""

import ctypes
import os
import signal
import sys
from collections.abc import Callable

_PR_SET_PDEATHSIG = 1


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
