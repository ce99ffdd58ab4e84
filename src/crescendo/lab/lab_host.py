"""What is a host of the lab, and what can be done to it?

Programs start on it; its link can be cut, limited and impaired; it moves between access points. Namespaces are made by
`HostNetwork`, and changed by the switch, which the network asks.
"""

import os
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from crescendo.lab import arp_retry_program, connection_end_program, listener_program
from crescendo.lab.namespaces import enter_host, enter_network
from crescendo.lab.ownership import LAB_VARIABLE, owner_mark
from crescendo.lab.packet_link import MECHANISM as TAP_LINK
from crescendo.lab.packet_link import PacketLink
from crescendo.lab.packet_link_program import LinkCounts
from crescendo.lab.switch_requests import (
    OK,
    AddLocalAddress,
    ConnectHost,
    JoinBridge,
    LeaveBridge,
    LimitLink,
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
from crescendo.processes.child import ChildProcess, close_pipes, first_line, launch_child, wait_or_kill
from crescendo.processes.die_with_parent import die_with_parent

if TYPE_CHECKING:
    from crescendo.lab.host_network import HostNetwork

SUBNETS = "10.77"
ROUTER = 1  # number of the router in each IP network
READY_S, END_S = 30.0, 10.0
_ANSWER_S = 10.0


def host_address(subnet: int, number: int) -> str:
    return f"{SUBNETS}.{subnet}.{number}"


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
        self.name, self.address = name, host_address(0, number)
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
            ours.settimeout(READY_S)
            message, fds, _, _ = socket.recv_fds(ours, 200, 1)
            wait_or_kill(making, END_S)
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
        address, before = host_address(subnet, self._number), self.address
        if address != before:
            self._network.ask(SetAddress(self.keeper, address, host_address(subnet, ROUTER)))
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
        wait_or_kill(running, END_S)
        close_pipes(running)
        return answer

    def connect(self, link: "PacketLink | None", access_point: str | None) -> None:
        """Plug it in, once."""
        bridge, subnet = self._network.bridge_of(access_point)
        self._link = link
        self.address = host_address(subnet, self._number)
        tap = None if link is None else link.inside
        self._network.ask(ConnectHost(self.port, self.keeper, self.address, bridge, tap))
        if self._network.has_routers:
            self._network.ask(SetRoute(self.keeper, host_address(subnet, ROUTER)))

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
        wait_or_kill(self._guardian, END_S)
        for child in self._children:
            wait_or_kill(child, END_S)
            close_pipes(child)
