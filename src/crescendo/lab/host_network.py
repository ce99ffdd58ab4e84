"""How do hosts of one machine get a network of their own?

Each host is a set of namespaces that its guardian keeps; one process, the switch, connects them. Both hold a pipe to
the process that made the network: when it ends, however it ends, they end too, and so does everything that runs on the
hosts. The network of the machine itself is not touched, and hosts reach nothing but each other.
"""

import contextlib
import os
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType

import msgspec

from crescendo.lab import arp_retry_program, connection_end_program, host_guardian, listener_program
from crescendo.lab.namespaces import (
    enter_host,
    enter_network,
    enter_user,
    is_rootless,
    require_permission,
    unshare_host,
    unshare_network,
)
from crescendo.lab.ownership import LAB_VARIABLE, owner_mark
from crescendo.lab.packet_link import MECHANISM as TAP_LINK
from crescendo.lab.packet_link import NoTapError, PacketLink
from crescendo.lab.packet_link_program import LinkCounts
from crescendo.lab.switch_requests import (
    BRIDGE,
    OK,
    AddBridge,
    AddLocalAddress,
    ConnectHost,
    JoinBridge,
    LeaveBridge,
    LimitLink,
    Request,
    SetAddress,
    SetLink,
    SetRetransmission,
    SetRoute,
)
from crescendo.lab.tcp_link import MECHANISM as TCP_LINK
from crescendo.lab.tcp_link import TcpLinkHandle
from crescendo.lab.tcp_link_program import TcpLinkCounts
from crescendo.model.errors import ConfigError, LostError
from crescendo.model.lab_network import Impairment
from crescendo.processes.child import ChildProcess, close_pipes, exits_within, first_line, launch_child, wait_or_kill
from crescendo.processes.die_with_parent import die_with_parent

SUBNETS = "10.77"
ROUTER = 1  # number of the router in each IP network
MAX_HOSTS = 200
_READY_S, _ANSWER_S, _END_S = 30.0, 10.0, 10.0
_HOST_NAME = re.compile(r"[a-z][a-z0-9-]{0,40}")


def _address(subnet: int, number: int) -> str:
    return f"{SUBNETS}.{subnet}.{number}"


def _bridge(subnet: int) -> str:
    return f"{BRIDGE}{subnet}" if subnet else BRIDGE


class LabHost:
    """One host: programs that it starts have its network, its name and its clock."""

    def __init__(
        self,
        name: str,
        number: int,
        guardian: ChildProcess,
        keeper: int,
        network: "HostNetwork",
        *,
        own_clock: bool,
    ) -> None:
        self.name, self.address = name, _address(0, number)
        self._number, self._guardian, self._network = number, guardian, network
        self.keeper = keeper
        """A process that is on the host as long as the host exists."""
        self.port = f"port{number}"
        self._link: PacketLink | None = None
        self._tcp_link: TcpLinkHandle | None = None
        self._own_clock = own_clock
        self._rto_min_ms: int | None = None
        self._children: list[ChildProcess] = []

    def command(self, argv: Sequence[str]) -> list[str]:
        """The command that runs this one on the host."""
        return enter_host(self.keeper, argv, rootless=self._network.rootless, own_clock=self._own_clock)

    def network_command(self, argv: Sequence[str]) -> list[str]:
        """The command that runs this one in the host's network, but with the name and the clock of this machine."""
        return enter_network(self.keeper, argv, rootless=self._network.rootless)

    def listener(self, port: int) -> socket.socket:
        """A socket of ours that listens on the loopback interface of the host."""
        ours, theirs = socket.socketpair()
        with ours, theirs:
            program = [sys.executable, "-I", "-S", listener_program.__file__, str(port)]
            making = self.launch(program, stdin=theirs.fileno())
            theirs.close()
            ours.settimeout(_READY_S)
            message, fds, _, _ = socket.recv_fds(ours, 200, 1)
            wait_or_kill(making, _END_S)
        if not fds:
            raise LostError(
                f"lab: nothing can listen at port {port} of {self.name}: {message.decode(errors='replace')}"
            )
        return socket.socket(fileno=fds[0])

    def launch(
        self,
        argv: Sequence[str],
        *,
        log: Path | None = None,
        stdin: int = subprocess.DEVNULL,
        stdout: int | None = None,
        stderr: int | None = None,
        env: Mapping[str, str] | None = None,
    ) -> ChildProcess:
        """Start a program on the host. It ends with this process, and with the host."""
        child = launch_child(
            self.command(argv),
            on_fork=die_with_parent(),
            log=log,
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            env={**(os.environ if env is None else env), LAB_VARIABLE: owner_mark()},
        )
        self._children.append(child)
        return child

    def cut(self) -> None:
        """Nothing passes the host's link any more, in either direction. Connections stay open."""
        if self._tcp_link is not None:
            self._tcp_link.cut()
        self._network.ask(SetLink(self.port, "down"))

    def restore(self) -> None:
        """Undo `cut`."""
        if self._tcp_link is not None:
            self._tcp_link.restore()
        self._network.ask(SetLink(self.port, "up"))

    def limit(self, up_bps: int | None, down_bps: int | None) -> None:
        """Limit what comes from the host and what goes to it, in bits per second.

        0 removes the limit; None lets nothing pass in that direction.
        """
        if self._tcp_link is not None:
            self._tcp_link.limit(up_bps, down_bps)
            return
        self._network.ask(LimitLink(self.port, self.keeper, up_bps, down_bps))

    def impair(self, up: Impairment, down: Impairment) -> None:
        """Change what the host's link does to packets from the host (up) and to it. A cable cannot do that."""
        link = self._link or self._tcp_link
        if link is None:
            raise ConfigError(f"lab: {self.name} has no packet link; only such a link delays and loses packets")
        link.impair(up, down)

    @property
    def can_be_impaired(self) -> bool:
        return self._link is not None or self._tcp_link is not None

    @property
    def link_means(self) -> str:
        """By which means its link is impaired; empty for a cable."""
        if self._tcp_link is not None:
            return TCP_LINK
        return TAP_LINK if self._link is not None else ""

    def link_over_tcp(self, system: "LabHost") -> None:
        """Reach the system by a TCP link from now on, through the ports that `open_port` opens."""
        if system is self:
            raise ConfigError(
                f"lab: {self.name} is the system's host, and its own link cannot be a TCP link; impair those of others"
            )
        self._tcp_link = TcpLinkHandle(
            lambda argv: self._network.start(system.network_command(argv)), self.name, self.keeper, system.address
        )
        self._network.ask(AddLocalAddress(self.keeper, system.address))

    def open_port(self, port: int) -> None:
        """Let connections to this port of the system pass, where that has to be said."""
        if self._tcp_link is not None:
            self._tcp_link.open_port(port)

    @property
    def tcp_counts(self) -> TcpLinkCounts | None:
        """What its TCP link has done so far; None if it has none."""
        return None if self._tcp_link is None else self._tcp_link.counts()

    @property
    def packet_counts(self) -> LinkCounts | None:
        """What its packet link has done so far; None if it has none."""
        return None if self._link is None else self._link.counts()

    def retransmit_after(self, rto_min_ms: int) -> None:
        """TCP of the host repeats what was not acknowledged after this time at the earliest; Linux waits 200 ms."""
        self._rto_min_ms = rto_min_ms
        self._network.ask(SetRetransmission(self.keeper, self.address, rto_min_ms, self._router))

    def ask_arp_again_after(self, interval_ms: int) -> None:
        """The host asks again for an address that nobody answers for at this interval; Linux waits a second."""
        answer = self._answer_of(arp_retry_program.__file__, str(interval_ms))
        if answer != OK:
            raise ConfigError(
                f"lab: the kernel does not let us set arp_retry of {self.name} ({answer or 'no answer'}); "
                "run as root, or leave it out"
            )

    @property
    def _router(self) -> str | None:
        return f"{self.address.rpartition('.')[0]}.{ROUTER}" if self._network.has_routers else None

    def leave(self) -> None:
        """Leave the access point: there is no link until the host joins another."""
        if self._tcp_link is not None:
            self._tcp_link.cut()
        self._network.ask(LeaveBridge(self.port))

    def join(self, access_point: str, *, silent: bool = False) -> bool:
        """Join an access point. In another IP network the host gets another address, and its connections end.

        With `silent` they do not: nothing comes through them any more, and the programs have to notice.
        """
        bridge, subnet = self._network.bridge_of(access_point)
        address, before = _address(subnet, self._number), self.address
        if address != before:
            self._network.ask(SetAddress(self.keeper, address, _address(subnet, ROUTER)))
            self.address = address
        self._network.ask(JoinBridge(self.port, bridge))
        if self._tcp_link is not None:
            if address != before:
                self._tcp_link.end_connections(silent=silent)
            self._tcp_link.restore()
        elif address != before:
            if self._rto_min_ms is not None:
                self.retransmit_after(self._rto_min_ms)
            if not silent:
                self.end_connections(before)
        return address != before

    def end_connections(self, address: str) -> int:
        """End every TCP connection from this address with an error, as mobile systems do when they lose it."""
        count = self._answer_of(connection_end_program.__file__, address)
        if not count.isdecimal():
            raise LostError(f"lab: the connections of {self.name} could not be ended: {count or 'no answer'}")
        return int(count)

    def _answer_of(self, program: str, argument: str) -> str:
        """The first line that a small program of ours says on the host."""
        argv = [sys.executable, "-I", "-S", program, argument]
        running = self.launch(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        answer = first_line(running, _ANSWER_S)
        wait_or_kill(running, _END_S)
        close_pipes(running)
        return answer

    def connect(self, link: "PacketLink | None", access_point: str | None) -> None:
        """Plug it in, once."""
        bridge, subnet = self._network.bridge_of(access_point)
        self._link = link
        self.address = _address(subnet, self._number)
        tap = None if link is None else link.inside
        self._network.ask(ConnectHost(self.port, self.keeper, self.address, bridge, tap))
        if self._network.has_routers:
            self._network.ask(SetRoute(self.keeper, _address(subnet, ROUTER)))

    @property
    def failure(self) -> str:
        """Whether the host or its packet link has ended; empty while both are there."""
        if self._guardian.poll() is not None:
            return f"lab: the host {self.name} has ended"
        links = [link for link in (self._link, self._tcp_link) if link is not None]
        return f"lab: the link of {self.name} has ended" if any(link.ended for link in links) else ""

    def remove(self) -> None:
        """End everything that runs on it. Safe to call twice."""
        for link in (self._link, self._tcp_link):
            if link is not None:
                link.close()
        close_pipes(self._guardian)
        wait_or_kill(self._guardian, _END_S)
        for child in self._children:
            wait_or_kill(child, _END_S)
            close_pipes(child)


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
            self._await_answer(_READY_S)

    def add_access_points(self, networks: Mapping[str, int]) -> None:
        """Access points with the number of their IP network. Before the first host, which must know its router."""
        subnets = sorted({0, *networks.values()})
        self.has_routers = len(subnets) > 1
        for subnet in subnets:
            if self.has_routers:
                self.ask(AddBridge(_bridge(subnet), _address(subnet, ROUTER)))
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
            keeper = first_line(guardian, _READY_S)
            if not keeper.isdecimal():
                wait_or_kill(guardian, _END_S)
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
        if not exits_within(self._switch, _END_S):
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
