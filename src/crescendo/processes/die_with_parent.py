"""How does a child process end when its parent dies?

A small program runs in the child first, asks the kernel to kill it when its parent dies (PR_SET_PDEATHSIG), and then
becomes the program that was wanted: `exec_with_pdeathsig.py`. Starts nothing itself."""

import os
import sys
from collections.abc import Sequence
from typing import NamedTuple

from crescendo.processes import exec_with_pdeathsig
from crescendo.processes.exec_with_pdeathsig import NONE


class DieWithParent(NamedTuple):
    """The process whose death ends the child."""

    parent: int

    def wrap(
        self, argv: Sequence[str], *, user: int | None = None, group: int | None = None, report_fd: int | None = None
    ) -> list[str]:
        """The command that becomes this one, with the rights of that account alone.

        With a file descriptor, it reports there why the program could not be executed: an errno as text.
        """
        if sys.platform != "linux":
            return list(argv)
        options = (report_fd, self.parent, user, group)
        texts = [NONE if option is None else str(option) for option in options]
        return [sys.executable, "-I", "-S", exec_with_pdeathsig.__file__, *texts, *argv]


def die_with_parent() -> DieWithParent:
    """Ends a child when this process dies. Start the child from the main thread: to the kernel, that is its parent."""
    return DieWithParent(os.getpid())
