"""How are the connections of a node broken while it runs?

`ss -K` asks the kernel to destroy them at the side of the node: both ends see a reset, as after a failover of a
firewall. Needs root and a kernel with CONFIG_INET_DIAG_DESTROY. Nothing has to be undone.
"""

import os
import shutil
import subprocess

from crescendo.faults.action import Cure, FaultAction, FaultNode, NoSettings
from crescendo.model.errors import PeerError

_TIMEOUT_S = 10.0


class ResetConnections(FaultAction[FaultNode, NoSettings]):
    """Resets every connection to the ports of a node."""

    name = "disconnect"
    summary = "resets every connection to the ports of the node (`ss -K`)"
    settings = NoSettings

    def why_not(self, settings: NoSettings) -> str:
        if shutil.which("ss") is None:
            return "it needs the command ss; install iproute2"
        return "" if os.geteuid() == 0 else "it needs root"

    def apply(self, target: FaultNode, settings: NoSettings, cure: Cure | None) -> str:
        listeners = " or ".join(f"sport = :{port}" for port in target.ports)
        killed = _ss("-K", listeners)
        left = set(killed) & set(_ss("-n", listeners))
        if left:
            raise PeerError(f"the kernel does not destroy connections: {len(left)} of {len(killed)} are left")
        return f"{len(killed)} connections"


def _ss(option: str, listeners: str) -> list[str]:
    """The connections that it lists: the addresses of both ends."""
    command = ["ss", option, "-H", "-t", "-n", "state", "established", f"( {listeners} )"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=True)
    except (OSError, subprocess.SubprocessError) as err:
        raise PeerError(f"ss failed: {err}") from err
    return [" ".join(line.split()[2:4]) for line in done.stdout.splitlines()]


DISCONNECT = ResetConnections()
