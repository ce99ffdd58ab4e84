"""What does a link do where neither netem nor a TAP interface can be had?

Delay and rate in each direction, half-open connections and resets, by a process that passes bytes on
(`tcp_link_program.py`); this is its handle. What needs packets, such as loss, is refused with a sentence.
"""

import sys

import msgspec
from msgspec import structs

from crescendo.lab.byte_lane import LaneShape
from crescendo.lab.link_process import LinkProcess, StartProgram
from crescendo.lab.tcp_link_program import (
    CountBytes,
    EndConnections,
    OpenPort,
    ShapeLink,
    TcpLinkCounts,
)
from crescendo.model.errors import ConfigError, LostError
from crescendo.model.lab_network import Impairment

MECHANISM = "TCP link: a process passes bytes on, with delay, rate, resets and half-open connections only"
_PACKET_KEYS = ("jitter", "loss", "duplicate", "reorder", "corrupt")


def refuse_packet_keys(host: str, why_no_tap: str, *impairments: Impairment | None) -> None:
    """Raise ConfigError if one of them needs packets."""
    wanted = [key for key in _PACKET_KEYS for one in impairments if one is not None and getattr(one, key)]
    if wanted:
        raise ConfigError(
            f"lab: {host} wants {wanted[0]}, which needs a TAP interface, and there is none here ({why_no_tap}); "
            "run as root with /dev/net/tun, or leave it out: a TCP link has delay, rate, reset and half-open only"
        )


class TcpLinkHandle:
    """The process between a host and the system, and what its directions should do."""

    def __init__(self, start: StartProgram, host: str, keeper: int, address: str) -> None:
        """`start` starts a program on the host of the system. The link is clean at first."""
        self._host = host
        self._up, self._down = LaneShape(), LaneShape()
        self._is_cut = False
        argv = [sys.executable, "-m", "crescendo.lab.tcp_link_program", str(keeper), address]
        self._process = LinkProcess(start, argv, f"the TCP link of {host}")
        if why := self._process.why_not_ready():
            raise LostError(f"lab: the TCP link of {host} could not be made: {why}")

    def open_port(self, port: int) -> None:
        """Connections of the host to this port of the system pass the link."""
        self._process.order(OpenPort(port))

    def impair(self, up: Impairment, down: Impairment) -> None:
        refuse_packet_keys(self._host, "this is a TCP link", up, down)
        self._up = structs.replace(self._up, delay_ns=int(up.delay))
        self._down = structs.replace(self._down, delay_ns=int(down.delay))
        self._reshape()

    def limit(self, up_bps: int | None, down_bps: int | None) -> None:
        self._up = structs.replace(self._up, rate_bps=up_bps)
        self._down = structs.replace(self._down, rate_bps=down_bps)
        self._reshape()

    def cut(self) -> None:
        """Connections stay, half-open; what was written waits."""
        self._is_cut = True
        self._reshape()

    def restore(self) -> None:
        self._is_cut = False
        self._reshape()

    def end_connections(self, *, silent: bool) -> None:
        """Reset every connection; with `silent` it stays half-open forever."""
        self._process.order(EndConnections(silent))

    def counts(self) -> TcpLinkCounts:
        return msgspec.json.decode(self._process.ask(CountBytes()), type=TcpLinkCounts)

    @property
    def ended(self) -> bool:
        """Whether its process has ended, although nobody closed it."""
        return self._process.ended

    def close(self) -> None:
        """End the process, and with it every connection. Safe to call twice."""
        self._process.close()

    def _reshape(self) -> None:
        shapes = (self._up, self._down)
        if self._is_cut:
            shapes = structs.replace(self._up, rate_bps=None), structs.replace(self._down, rate_bps=None)
        self._process.order(ShapeLink(*shapes))
