"""Which process connects the hosts of the lab?

This one, as `python -m crescendo.lab.switch_program`, in a network of its own, so that the network of the machine is
never touched. It reads one request per line (JSON) from its standard input, changes bridge, links and rates with
netlink, and answers with one line: `ok`, or what went wrong. When its input ends it exits, and the kernel removes
everything that it made. Starts nothing.
"""

import sys
from typing import IO, Literal

import msgspec
from msgspec import Struct
from pyroute2 import IPRoute, NetNS
from pyroute2.netlink.exceptions import NetlinkError

OK = "ok"
BRIDGE, INSIDE = "lab", "eth0"
PREFIX = 24
_BURST_BYTES = 32 * 1024
_QUEUE_LATENCY = "400ms"
_ROOT_HANDLE = 0x10000


class ConnectHost(Struct, frozen=True, tag="join"):
    """Connect the host that the process keeps."""

    port: str
    keeper: int
    address: str


class SetLink(Struct, frozen=True, tag="carry"):
    """Cut the link of a host, or restore it."""

    port: str
    state: Literal["up", "down"]


class LimitLink(Struct, frozen=True, tag="limit"):
    """Limit the link of a host in both directions, in bits per second; 0 removes the limit."""

    port: str
    keeper: int
    rate_bps: int


Request = ConnectHost | SetLink | LimitLink


class Switch:
    """A bridge, and one pair of virtual interfaces per host."""

    def __init__(self, netlink: IPRoute) -> None:
        self._netlink = netlink
        netlink.link("add", ifname=BRIDGE, kind="bridge")
        self._bridge = self._index(BRIDGE)
        netlink.link("set", index=self._bridge, state="up")
        self._limited: set[str] = set()

    def carry_out(self, request: Request) -> None:
        match request:
            case ConnectHost(port, keeper, address):
                self._join(port, keeper, address)
            case SetLink(port, state):
                self._netlink.link("set", index=self._index(port), state=state)
            case LimitLink(port, keeper, rate_bps):
                self._limit(port, keeper, rate_bps)

    def _join(self, port: str, keeper: int, address: str) -> None:
        self._netlink.link("add", ifname=port, kind="veth", peer={"ifname": INSIDE, "net_ns_pid": keeper})
        self._netlink.link("set", index=self._index(port), master=self._bridge, state="up")
        with NetNS(f"/proc/{keeper}/ns/net", flags=0) as inside:
            for name in ("lo", INSIDE):
                inside.link("set", index=inside.link_lookup(ifname=name)[0], state="up")
            inside.addr("add", index=inside.link_lookup(ifname=INSIDE)[0], address=address, prefixlen=PREFIX)

    def _limit(self, port: str, keeper: int, rate_bps: int) -> None:
        with NetNS(f"/proc/{keeper}/ns/net", flags=0) as inside:
            for netlink, index in (
                (self._netlink, self._index(port)),  # towards the host
                (inside, inside.link_lookup(ifname=INSIDE)[0]),  # from it
            ):
                if port in self._limited:
                    netlink.tc("del", index=index, handle=_ROOT_HANDLE, parent=0xFFFFFFFF)
                if rate_bps:
                    netlink.tc(
                        "add", "tbf", index=index, handle=_ROOT_HANDLE,
                        rate=rate_bps // 8, burst=_BURST_BYTES, latency=_QUEUE_LATENCY,
                    )  # fmt: skip
        self._limited.discard(port)
        if rate_bps:
            self._limited.add(port)

    def _index(self, name: str) -> int:
        found: int = self._netlink.link_lookup(ifname=name)[0]
        return found


def serve(requests: IO[bytes], answers: IO[str]) -> None:
    decoder = msgspec.json.Decoder(Request)
    with IPRoute() as netlink:
        try:
            switch = Switch(netlink)
        except (NetlinkError, IndexError) as err:
            print(f"this kernel has no bridge: {err}", file=answers, flush=True)
            return
        print(OK, file=answers, flush=True)
        for line in requests:
            try:
                switch.carry_out(decoder.decode(line))
                answer = OK
            except (NetlinkError, OSError, IndexError) as err:
                answer = f"{type(err).__name__}: {err}"
            print(answer.replace("\n", " "), file=answers, flush=True)


if __name__ == "__main__":
    serve(sys.stdin.buffer, sys.stdout)
