"""How do hosts of one machine get a network of their own?

Each host is a set of namespaces that its guardian keeps; one process, the switch, connects them. Both hold a pipe to
the process that made the network: when it ends, however it ends, they end too, and so does everything that runs on the
hosts. The network of the machine itself is not touched, and hosts reach nothing but each other.
"""

import contextlib
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType

import msgspec

from crescendo.lab import host_guardian
from crescendo.lab.lab_host import END_S, READY_S, ROUTER, LabHost, host_address
from crescendo.lab.namespaces import (
    enter_network,
    enter_user,
    is_rootless,
    require_permission,
    unshare_host,
    unshare_network,
)
from crescendo.lab.ownership import LAB_VARIABLE, owner_mark
from crescendo.lab.packet_link import NoTapError, PacketLink
from crescendo.lab.switch_requests import BRIDGE, OK, AddBridge, Request
from crescendo.model.errors import ConfigError, LostError
from crescendo.processes.child import ChildProcess, close_pipes, exits_within, first_line, launch_child, wait_or_kill

MAX_HOSTS = 200
_ANSWER_S = 10.0
_HOST_NAME = re.compile(r"[a-z][a-z0-9-]{0,40}")


def _bridge(subnet: int) -> str:
    return f"{BRIDGE}{subnet}" if subnet else BRIDGE


class HostNetwork:
    """Hosts that reach each other. Use as a context manager, or call close()."""

    def __init__(self, *, rootless: bool | None = None, seed: int = 1) -> None:
        """Rootless unless this is root. Raises ConfigError where the kernel does not permit it.

        The seed decides which packets of impaired links are lost, doubled or damaged.
        """
        require_permission()
        self.rootless = is_rootless() if rootless is None else rootless
        self.seed = seed
        self._asking = threading.Lock()
        self.hosts: dict[str, LabHost] = {}
        self._access_points: dict[str, tuple[str, int]] = {}  # bridge and IP network
        self.has_routers = False
        argv = unshare_network([sys.executable, "-m", "crescendo.lab.switch_program"], rootless=self.rootless)
        self._switch = self.start(argv)
        with self._closed_on_error():
            self._await_answer(READY_S)

    def add_access_points(self, networks: Mapping[str, int]) -> None:
        """Access points with the number of their IP network. Before the first host, which must know its router."""
        subnets = sorted({0, *networks.values()})
        self.has_routers = len(subnets) > 1
        for subnet in subnets:
            if self.has_routers:
                self.ask(AddBridge(_bridge(subnet), host_address(subnet, ROUTER)))
        for number, (name, subnet) in enumerate(networks.items()):
            bridge = f"ap{number}"
            self.ask(AddBridge(bridge, uplink=_bridge(subnet)))
            self._access_points[name] = (bridge, subnet)

    def bridge_of(self, access_point: str | None) -> tuple[str, int]:
        """The bridge of an access point and the number of its IP network; without one, those of the cables."""
        if access_point is None:
            return BRIDGE, 0
        if access_point not in self._access_points:
            raise ConfigError(f"lab: {access_point!r} is not an access point of this network")
        return self._access_points[access_point]

    def add(
        self, name: str, *, clock_shift_s: int = 0, access_point: str | None = None, packet_link: bool = False
    ) -> LabHost:
        """A new host, whose monotonic clock may be some seconds ahead of ours. Only a packet link can be impaired."""
        if not _HOST_NAME.fullmatch(name) or name in self.hosts:
            raise ConfigError(f"lab: {name!r} is not a new host name; use lower-case letters, digits and hyphens")
        if len(self.hosts) >= MAX_HOSTS:
            raise ConfigError(f"lab: a network has at most {MAX_HOSTS} hosts")
        program = [sys.executable, "-I", "-S", host_guardian.__file__, name]
        made = unshare_host(program, clock_shift_s=clock_shift_s)
        guardian = self.start(enter_user(self._switch.pid, made, rootless=self.rootless))
        with self._closed_on_error():
            keeper = first_line(guardian, READY_S)
            if not keeper.isdecimal():
                wait_or_kill(guardian, END_S)
                close_pipes(guardian)
                raise LostError(f"lab: host {name} could not be made: {keeper or 'its guardian did not answer'}")
            host = LabHost(name, len(self.hosts) + 2, guardian, int(keeper), self, own_clock=clock_shift_s != 0)
            self.hosts[name] = host
            link = self._packet_link(host.port) if packet_link else None
            host.connect(link, access_point)
        return host

    def why_no_tap(self) -> str:
        """Why there are no packet links here; empty if there are. Found by making one."""
        try:
            self._packet_link("probe").close()
        except NoTapError as err:
            return err.why
        return ""

    def _packet_link(self, port: str) -> PacketLink:
        return PacketLink(
            lambda argv: self.start(enter_network(self._switch.pid, argv, rootless=self.rootless)), port, self.seed
        )

    def ask(self, request: Request) -> None:
        """Have the switch carry out a request."""
        assert self._switch.stdin is not None  # noqa: S101 - it was started with a pipe
        with self._asking:
            try:
                self._switch.stdin.write(msgspec.json.encode(request) + b"\n")
                self._switch.stdin.flush()
            except OSError as err:
                raise LostError(f"lab: the switch has ended: {err.strerror}") from err
            self._await_answer(_ANSWER_S)

    @property
    def failure(self) -> str:
        """Which of the processes that the network consists of has ended; empty while all run."""
        if self._switch.poll() is not None:
            return "lab: the switch has ended"
        return next((host.failure for host in self.hosts.values() if host.failure), "")

    def close(self) -> None:
        """Remove hosts, links and every process on them. Safe to call twice."""
        for host in self.hosts.values():
            host.remove()
        close_pipes(self._switch)
        if not exits_within(self._switch, END_S):
            wait_or_kill(self._switch, 0)

    def __enter__(self) -> "HostNetwork":
        return self

    def __exit__(self, kind: type[BaseException] | None, err: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def start(self, argv: Sequence[str]) -> ChildProcess:
        """Start a part of the network, with pipes."""
        # Not tied to this process by the kernel: a guardian needs a moment longer than its lab, to remove the rest.
        return launch_child(
            argv,
            on_fork=None,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**os.environ, LAB_VARIABLE: owner_mark()},
        )

    def _await_answer(self, timeout_s: float) -> None:
        answer = first_line(self._switch, timeout_s)
        if answer != OK:
            raise LostError(f"lab: {answer or 'the switch does not answer'}")

    @contextlib.contextmanager
    def _closed_on_error(self) -> Iterator[None]:
        try:
            yield
        except BaseException:
            self.close()
            raise
