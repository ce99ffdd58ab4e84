"""Which program runs between the fork and the exec of a child?

This one, as `python -I -S exec_with_pdeathsig.py REPORT PARENT UID GID PROGRAM ARGUMENT…`. It gives up the rights of
our account if another is named, asks the kernel to kill it when its parent dies, and becomes that program. It is
separate, because Python code between fork and exec may deadlock when other threads run. Imports nothing
of Crescendo, and little of Python: it takes about 35 ms on two busy cores.
"""

import ctypes
import os
import signal
import sys

NONE = "-"
"""For an argument that is left out."""

_PR_SET_PDEATHSIG = 1
_IGNORED_BY_PYTHON = (signal.SIGPIPE, signal.SIGXFSZ)
_NOT_STARTED = 127


def main() -> None:
    report, parent, uid, gid, *argv = sys.argv[1:]
    try:
        if uid != NONE:
            os.setgroups([])
            os.setresgid(int(gid), int(gid), int(gid))
            os.setresuid(int(uid), int(uid), int(uid))
        # After the change of account, which clears it.
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != int(parent):  # it died before the prctl
            os._exit(_NOT_STARTED)
        for number in _IGNORED_BY_PYTHON:
            signal.signal(number, signal.SIG_DFL)
        if report != NONE:
            os.set_inheritable(int(report), False)  # closed by a successful exec: that is the good report
        os.execvp(argv[0], argv)  # noqa: S606 - the purpose of this program
    except OSError as err:
        if report == NONE:
            sys.exit(f"{argv[0]} cannot be started: {err.strerror}")
        os.write(int(report), str(err.errno).encode())
        os._exit(_NOT_STARTED)


if __name__ == "__main__":
    main()
