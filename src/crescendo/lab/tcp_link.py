"""What does a link do where neither netem nor a TAP interface can be had?

Delay and rate in each direction, half-open connections and resets, by a process that passes bytes on
(`tcp_link_program.py`); this is its handle. What needs packets, such as loss, is refused with a sentence.
"""

import sys
import threading
from collections.abc import Callable

import msgspec
from msgspec import structs

from crescendo.lab.byte_lane import LaneShape
from crescendo.lab.switch_requests import OK
from crescendo.lab.tcp_link_program import (
    CountBytes,
    EndConnections,
    OpenPort,
    ShapeLink,
    TcpLinkCounts,
    TcpLinkRequest,
)
from crescendo.model.errors import ConfigError, LostError
from crescendo.model.lab_network import Impairment
from crescendo.processes.child import ChildProcess, close_pipes, first_line, wait_or_kill

MECHANISM = "TCP link: a process passes bytes on, with delay, rate, resets and half-open connections only"
_READY_S, _ANSWER_S, _END_S = 30.0, 10.0, 5.0
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

    def __init__(self, start: Callable[[list[str]], ChildProcess], host: str, keeper: int, address: str) -> None:
        """`start` starts a program on the host of the system, with pipes. The link is clean at first."""
        self._host = host
        self._asking = threading.Lock()
        self._up, self._down = LaneShape(), LaneShape()
        self._is_cut = False
        self._process = start([sys.executable, "-m", "crescendo.lab.tcp_link_program", str(keeper), address])
        answer = first_line(self._process, _READY_S)
        if answer != OK:
            self.close()
            raise LostError(f"lab: the TCP link of {host} could not be made: {answer or 'it said nothing'}")

    def open_port(self, port: int) -> None:
        """Connections of the host to this port of the system pass the link."""
        self._order(OpenPort(port))

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
        """Reset every connection; with `silent` it stays half-open for ever."""
        self._order(EndConnections(silent))

    def counts(self) -> TcpLinkCounts:
        return msgspec.json.decode(self._ask(CountBytes()), type=TcpLinkCounts)

    @property
    def ended(self) -> bool:
        """Whether its process has ended, although nobody closed it."""
        return self._process.poll() is not None

    def close(self) -> None:
        """End the process, and with it every connection. Safe to call twice."""
        close_pipes(self._process)
        wait_or_kill(self._process, _END_S)

    def _reshape(self) -> None:
        shapes = (self._up, self._down)
        if self._is_cut:
            shapes = structs.replace(self._up, rate_bps=None), structs.replace(self._down, rate_bps=None)
        self._order(ShapeLink(*shapes))

    def _order(self, request: TcpLinkRequest) -> None:
        answer = self._ask(request)
        if answer != OK:
            raise LostError(f"lab: the TCP link of {self._host}: {answer}")

    def _ask(self, request: TcpLinkRequest) -> str:
        assert self._process.stdin is not None  # noqa: S101 - it was started with a pipe
        with self._asking:
            try:
                self._process.stdin.write(msgspec.json.encode(request) + b"\n")
                self._process.stdin.flush()
            except OSError as err:
                raise LostError(f"lab: the TCP link of {self._host} has ended: {err.strerror}") from err
            answer = first_line(self._process, _ANSWER_S)
        if not answer:
            raise LostError(f"lab: the TCP link of {self._host} does not answer")
        return answer
