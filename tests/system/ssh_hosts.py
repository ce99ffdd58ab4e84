"""A real sshd on hosts of a lab, for tests of clusters."""

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from crescendo.lab.lab_host import LabHost

DIAL = (
    "import socket, sys, time\n"
    "deadline = time.monotonic() + 60\n"
    "for place in sys.argv[1:]:\n"
    "    host, _, port = place.partition(':')\n"
    "    while True:\n"
    "        try:\n"
    "            socket.create_connection((host, int(port)), 5).close(); break\n"
    "        except OSError:\n"
    "            if time.monotonic() > deadline: raise\n"
    "            time.sleep(0.05)\n"
)
"""A program that returns when something listens at each HOST:PORT of its arguments."""


def sshd() -> str:
    found = shutil.which("sshd", path=os.environ.get("PATH", "") + ":/usr/sbin:/usr/local/sbin")
    assert found, "sshd is missing; apt-get install openssh-server"
    return found


def write_keys(directory: Path) -> None:
    """`host_key` of every sshd, and `user_key`, with which root signs in."""
    for key in ("host_key", "user_key"):
        argv = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(directory / key)]
        subprocess.run(argv, check=True, timeout=30)


def start_sshd(host: LabHost, directory: Path, further_lines: Sequence[str] = ()) -> None:
    """Start it with the keys in this directory, where its configuration and its log are kept too."""
    Path("/run/sshd").mkdir(exist_ok=True)
    config = directory / f"sshd-{host.name}.conf"
    lines = [
        f"ListenAddress {host.address}:22",
        f"HostKey {directory / 'host_key'}",
        f"AuthorizedKeysFile {directory / 'user_key.pub'}",
        "PidFile none",
        "StrictModes no",
        "UsePAM no",
        "PasswordAuthentication no",
        *further_lines,
    ]
    config.write_text("\n".join(lines) + "\n")
    host.launch([sshd(), "-D", "-e", "-f", str(config)], log=directory / f"sshd-{host.name}.log")
