"""Two hosts with a real sshd, in namespaces of this machine, and a third one from which a person works."""

import subprocess
import sys
from pathlib import Path

from crescendo.lab.host_network import HostNetwork
from ssh_hosts import DIAL, start_sshd, write_keys

PEER_HOSTS = {"s1": "senders", "r1": "receivers"}
"""Host -> its group in the inventory."""


class WebCluster:
    """The hosts, the cluster file that names them, and a relay as the system under test."""

    def __init__(self, network: HostNetwork, directory: Path) -> None:
        self.network, self.directory = network, directory
        for name in ("desk", *PEER_HOSTS):
            network.add(name)
        self.desk = network.hosts["desk"]
        config = directory / "mosquitto.conf"
        config.write_text(f"listener 1883 {self.desk.address}\nallow_anonymous true\nuser root\npersistence false\n")
        self.desk.launch(["mosquitto", "-c", str(config)], log=directory / "mosquitto.log")
        relay = [sys.executable, "-m", "crescendo.systems.relay", "--host", self.desk.address, "--port", "5672"]
        self.desk.launch(relay, log=directory / "relay.log")
        write_keys(directory)
        for name in PEER_HOSTS:
            start_sshd(network.hosts[name], directory)
        self.file = self._write_cluster()
        places = [f"{self.desk.address}:1883", f"{self.desk.address}:5672"]
        places += [f"{network.hosts[name].address}:22" for name in PEER_HOSTS]
        subprocess.run(self.desk.command([sys.executable, "-c", DIAL, *places]), check=True, timeout=90)

    def _write_cluster(self) -> Path:
        arguments = (
            f"-F none -o StrictHostKeyChecking=accept-new -o UserKnownHostsFile={self.directory / 'known_hosts'}"
        )
        lines = []
        for name, group in PEER_HOSTS.items():
            lines += [f"[{group}]", f"{name} ansible_host={self.network.hosts[name].address}"]
        lines += [
            "[all:vars]", "ansible_user=root", f"ansible_ssh_private_key_file={self.directory / 'user_key'}",
            f"ansible_ssh_common_args='{arguments}'", f"ansible_python_interpreter={sys.executable}",
            f"crescendo_python={sys.executable}", f"crescendo_directory={self.directory / 'on-hosts'}",
        ]  # fmt: skip
        (self.directory / "hosts.ini").write_text("\n".join(lines) + "\n")
        for file, text in (("control.url", f"mqtt://{self.desk.address}:1883"), ("lab.token", "70ce" * 12)):
            (self.directory / file).write_text(text + "\n")
            (self.directory / file).chmod(0o600)
        path = self.directory / "pair.yml"
        path.write_text(
            "inventory: hosts.ini\ncontrol_file: control.url\ntoken_file: lab.token\n"
            "provision: [echo, two machines are here]\nrelease: [echo, built 1.0]\n"
        )
        return path

    def browser(self, program: str) -> str:
        """A program that runs this one in the network of the desk; others reach nothing there."""
        path = self.directory / "browser"
        words = " ".join(f"'{word}'" for word in self.desk.network_command([program]))
        path.write_text(f'#!/bin/sh\nexec {words} "$@"\n')
        path.chmod(0o700)
        return str(path)
