"""Six hosts as namespaces: conductor, control broker, system and three peers; all but the first have a real sshd."""

import contextlib
import itertools
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from crescendo.lab.host_network import HostNetwork
from crescendo.lab.lab_host import LabHost
from handler_repository import HandlerRepository
from ssh_hosts import DIAL, start_sshd, write_keys
from whole_runs import CRESCENDO, write_experiment

RUN = str(Path(__file__).with_name("lab_run.py"))
PEERS = {"sender-a": "sender", "sender-b": "sender", "receiver-a": "receiver", "system": "inspector"}
"""Host -> the role of its peer; that of the system has two inspectors and an agent."""

HANDLER = '#!/bin/sh\necho "{\\"event\\": \\"seen\\", \\"host\\": \\"$(uname -n)\\"}" >&"$CRESCENDO_EVENTS_FD"\n'
DRIFT = 1.0005
DRIFTING = "sender-a"
SHIFTS_S = {DRIFTING: 1, "sender-b": 3600, "receiver-a": 86_400}
"""Host -> how far its clock is ahead; that of the first drifts, too, so it needs a time namespace to be another one."""

_NUMBERS = itertools.count()
FAKETIME_LIBRARY = "libfaketimeMT.so.1"


def faketime_library() -> str:
    found = sorted(Path("/usr/lib").glob(f"*/faketime/{FAKETIME_LIBRARY}"))
    assert found, "libfaketime is missing; apt-get install faketime"
    return str(found[0])


class ManyHosts:
    """The hosts, an inventory of them, and what somebody on the conductor's host types."""

    def __init__(self, network: HostNetwork, directory: Path, variables: Mapping[str, str] | None = None) -> None:
        """`variables` of every host of the inventory; by default they use the installation of the tests."""
        self.network, self.directory = network, directory
        self.pids: dict[str, int] = {}  # of standing peers
        for name in ("conductor", "broker", *PEERS):
            network.add(name, clock_shift_s=SHIFTS_S.get(name, 0))
        hosts = network.hosts
        relay = [sys.executable, "-m", "crescendo.systems.relay", "--host", hosts["system"].address, "--port", "5672"]
        self.relay = hosts["system"].launch(relay, log=directory / "relay.log")
        self.token = directory / "lab.token"
        self.token.touch(mode=0o600)
        self.token.write_text("70ce" * 12 + "\n")
        self.handlers = self._write_handlers()
        self.fake_clock = self._start_fake_clock()
        self._start_sshd()
        self.inventory = self._write_inventory("hosts.ini", variables or {"crescendo_python": sys.executable})
        places = [f"{hosts[name].address}:22" for name in ("broker", *PEERS)]
        self.on_conductor([sys.executable, "-c", DIAL, f"{hosts['system'].address}:5672", *places])

    @property
    def inspected(self) -> tuple[int, int]:
        """Two processes on the host of the system: that itself, and one beside it."""
        return self.relay.pid, self.network.hosts["system"].keeper

    def _write_handlers(self) -> str:
        """A repository with one command, and the configuration that allows an agent to run it."""
        repository = HandlerRepository(self.directory / "handlers")
        repository.write("user_command/look", HANDLER)
        source = {"from": str(repository.path), "commits": [repository.commit()]}
        (self.directory / "agent.yml").write_text(yaml.safe_dump({"sources": [source]}))
        return str(repository.path)

    def _start_fake_clock(self) -> dict[str, str]:
        """Variables for processes on the drifting host. One that stays keeps what makes their clocks one clock."""
        env = {"LD_PRELOAD": faketime_library(), "FAKETIME": f"+0 x{DRIFT}"}
        program = "import os, time; print(os.environ['FAKETIME_SHARED'], flush=True); time.sleep(10**6)"
        keeper = self.network.hosts[DRIFTING].launch(
            ["env", *(f"{key}={value}" for key, value in env.items()), sys.executable, "-c", program],
            stdout=subprocess.PIPE,
        )
        assert keeper.stdout is not None
        env["FAKETIME_SHARED"] = keeper.stdout.readline().decode().strip()
        return env

    def forget_fake_clock(self) -> None:
        """Remove what libfaketime leaves: a semaphore, which has a prefix there, and a shared page."""
        for name in self.fake_clock["FAKETIME_SHARED"].split():
            for file in (name.strip("/"), f"sem.{name.strip('/')}"):
                Path("/dev", "shm", file).unlink(missing_ok=True)

    def _start_sshd(self) -> None:
        write_keys(self.directory)
        fake_clock = " ".join(["SetEnv", *(f'"{key}={value}"' for key, value in self.fake_clock.items())])
        for name in ("broker", *PEERS):
            start_sshd(self.network.hosts[name], self.directory, [fake_clock] if name == DRIFTING else [])

    def _write_inventory(self, file: str, variables: Mapping[str, str], *, with_broker: bool = True) -> Path:
        common = {
            "ansible_user": "root",
            "ansible_ssh_private_key_file": str(self.directory / "user_key"),
            "ansible_ssh_common_args": f"'-F none -o StrictHostKeyChecking=accept-new "
            f"-o UserKnownHostsFile={self.directory / 'known_hosts'}'",
            "ansible_python_interpreter": sys.executable,
            "crescendo_directory": str(self.directory / "on-hosts"),
            **variables,
        }
        lines = ["[senders:children]", "north", "[north]"]
        for name, role in PEERS.items():
            if role != "sender":
                lines.append(f"[{role}s]")
            more = " crescendo_inspectors=2" if role == "inspector" else ""
            lines.append(f"{name} ansible_host={self.network.hosts[name].address}{more}")
        lines += ["[agents]", "system crescendo_agent_config=agent.yml"]
        lines += ["[control]", f"broker ansible_host={self.network.hosts['broker'].address}"] if with_broker else []
        lines += ["[all:vars]", *(f"{key}={value}" for key, value in common.items())]
        path = self.directory / file
        path.write_text("\n".join(lines) + "\n")
        return path

    @property
    def access(self) -> list[str]:
        return [
            "--control-file",
            str(self.directory / "control.url"),
            "--token-file",
            str(self.token),
        ]

    def on_conductor(
        self, argv: list[str], timeout_s: float = 120, check: bool = True
    ) -> "subprocess.CompletedProcess[str]":
        command = self.network.hosts["conductor"].command(argv)
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, check=False)
        assert not check or done.returncode == 0, (argv, done.stdout, done.stderr)
        return done

    def cluster(self, verb: str, *options: str, check: bool = True) -> "subprocess.CompletedProcess[str]":
        access = self.access[2:] if verb == "logs" else self.access
        return self.on_conductor([CRESCENDO, "cluster", verb, str(self.inventory), *access, *options], check=check)

    def second_inventory(self, python: str) -> Path:
        """The same hosts for another lab, whose peers are started with this program."""
        return self._write_inventory("second.ini", {"crescendo_python": python}, with_broker=False)

    def start(self, name: str, patience_s: float = 30, **changes: Any) -> tuple["subprocess.Popen[str]", Path]:
        """Start a run on the conductor's host, without analysis; and where its recording will be."""
        url = f"amqp://{self.network.hosts['system'].address}:5672"
        path = write_experiment(self.directory / f"{name}.yml", name=name, system={"url": url}, **changes)
        out = self.directory / f"{name}-{next(_NUMBERS)}"
        argv = [sys.executable, RUN, str(path), str(out), *self.access[1::2], str(patience_s)]
        command = self.network.hosts["conductor"].command(argv)
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True), out

    def run(self, name: str, **changes: Any) -> Path:
        process, out = self.start(name, **changes)
        said, progress = process.communicate(timeout=120)
        assert (process.returncode, said) == (0, "sealed\n"), progress
        (run_dir,) = (path for path in out.iterdir() if not path.is_symlink())
        return run_dir

    def processes_on(self, host: LabHost) -> set[str]:
        """The command lines of what runs there, apart from the guardian, sshd and the system."""
        network = os.readlink(f"/proc/{host.keeper}/ns/net")
        found = set()
        for process in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if os.readlink(process / "ns" / "net") == network:
                    found.add((process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip())
        return {
            line for line in found if not any(word in line for word in ("host_guardian", "sshd", "relay", "FAKETIME"))
        }


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ManyHosts]:
    with HostNetwork() as network:
        hosts = ManyHosts(network, tmp_path_factory.mktemp("hosts"))
        hosts.pids = {name: row["pid"] for name, row in peer_rows(hosts.cluster("up", "--json")).items()}
        yield hosts
    hosts.forget_fake_clock()


def peer_rows(done: "subprocess.CompletedProcess[str]") -> dict[str, dict[str, Any]]:
    found = json.loads(done.stdout)
    return {row["peer"]: row for row in (found if isinstance(found, list) else found["peers"])}
