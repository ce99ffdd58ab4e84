"""Which process keeps a host of the lab, and who removes what runs on it?

This one, as `python -I -S host_guardian.py NAME`, started in the namespaces of the host. It names the host, says its
pid, and waits until its standard input ends: then the lab is over, or its owner was killed. It kills every process in
its network and exits; the kernel removes network, links and names with the last process. Imports nothing of Crescendo.
"""

import contextlib
import os
import signal
import socket
import sys
import time

_POLL_S = 0.02


def main() -> None:
    socket.sethostname(sys.argv[1])
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    print(os.getpid(), flush=True)
    while os.read(0, 4096):
        pass
    while others := processes_in_this_network():
        for pid in others:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(_POLL_S)


def processes_in_this_network() -> list[int]:
    """The others that run here. A zombie has no namespace any more."""
    network = os.readlink("/proc/self/ns/net")
    found = []
    for name in os.listdir("/proc"):
        if name.isdecimal() and int(name) != os.getpid():
            try:
                if os.readlink(f"/proc/{name}/ns/net") == network:
                    found.append(int(name))
            except OSError:
                continue  # it ended, or belongs to others
    return found


if __name__ == "__main__":
    main()
