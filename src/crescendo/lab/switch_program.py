"""Which process connects the hosts of the lab?

This one, as `python -m crescendo.lab.switch_program`, in a network of its own, so that the network of the machine is
never touched. It reads one request per line (JSON) from its standard input, changes bridges, links and rates with
netlink, and answers with one line: `ok`, or what went wrong. When its input ends it exits, and the kernel removes
everything that it made. Starts nothing.
"""

import sys
from ipaddress import ip_interface
from pathlib import Path
from socket import AF_INET
from typing import IO

import msgspec
from pyroute2 import IPRoute, NetNS
from pyroute2.netlink.exceptions import NetlinkError

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

INSIDE = "eth0"
PREFIX = 24
_BURST_BYTES = 32 * 1024
_QUEUE_LATENCY = "400ms"
_LEAST_RATE_BYTES, _NO_FRAME_BYTES = 1000, 10  # a token bucket drops frames that are larger than itself
_ROOT_HANDLE = 0x10000
_LINK_SCOPE, _KERNEL_ROUTE = 253, 2  # as of the route that the kernel makes for an address
_FORWARDING = Path("/proc/sys/net/ipv4/ip_forward")  # of the network of the process that writes


class Switch:
    """Bridges, and one pair of interfaces per host."""

    def __init__(self, netlink: IPRoute) -> None:
        self._netlink = netlink
        self._uplinks: list[str] = []
        self._add_bridge(BRIDGE)
        self._limited: set[tuple[str, str]] = set()

    def carry_out(self, request: Request) -> None:
        match request:
            case AddBridge(name, router, uplink):
                if name != BRIDGE:
                    self._add_bridge(name)
                if router is not None:
                    self._route(name, router)
                if uplink is not None:
                    self._connect_bridges(name, uplink)
            case ConnectHost():
                self._join(request)
            case LeaveBridge(port):
                self._netlink.link("set", index=self._index(port), state="down")
                self._netlink.link("set", index=self._index(port), master=0)
            case JoinBridge(port, bridge):
                self._netlink.link("set", index=self._index(port), master=self._index(bridge), state="up")
                self._forget_stations()
            case SetAddress(keeper, address, router):
                with NetNS(f"/proc/{keeper}/ns/net", flags=0) as inside:
                    index = inside.link_lookup(ifname=INSIDE)[0]
                    inside.flush_addr(index=index, family=AF_INET)
                    inside.addr("add", index=index, address=address, prefixlen=PREFIX)
                    inside.route("replace", dst="default", gateway=router)
            case AddLocalAddress(keeper, address):
                with NetNS(f"/proc/{keeper}/ns/net", flags=0) as inside:
                    inside.addr("add", index=inside.link_lookup(ifname="lo")[0], address=address, prefixlen=32)
            case SetRoute(keeper, router):
                with NetNS(f"/proc/{keeper}/ns/net", flags=0) as inside:
                    inside.route("replace", dst="default", gateway=router)
            case SetRetransmission(keeper, address, rto_min_ms, router):
                self._retransmit(keeper, address, {"rto_min": rto_min_ms}, router)
            case SetLink(port, state):
                self._netlink.link("set", index=self._index(port), state=state)
            case LimitLink(port, keeper, up_bps, down_bps):
                self._limit("down", self._netlink, port, port, down_bps)
                with NetNS(f"/proc/{keeper}/ns/net", flags=0) as inside:
                    self._limit("up", inside, INSIDE, port, up_bps)

    def _add_bridge(self, name: str) -> None:
        self._netlink.link("add", ifname=name, kind="bridge")
        self._netlink.link("set", index=self._index(name), state="up")

    def _route(self, bridge: str, router: str) -> None:
        self._netlink.addr("add", index=self._index(bridge), address=router, prefixlen=PREFIX)
        _FORWARDING.write_text("1")

    def _connect_bridges(self, name: str, uplink: str) -> None:
        near, far = f"{name}-up", f"{name}-down"
        self._netlink.link("add", ifname=near, kind="veth", peer={"ifname": far})
        for port, bridge in ((near, name), (far, uplink)):
            self._netlink.link("set", index=self._index(port), master=self._index(bridge), state="up")
        self._uplinks += [near, far]

    def _forget_stations(self) -> None:
        """As access points announce a new station: nobody looks for it at its former place."""
        for port in self._uplinks:
            self._netlink.brport("set", index=self._index(port), flush=1)

    def _join(self, request: ConnectHost) -> None:
        port, keeper = request.port, request.keeper
        if request.tap is None:
            self._netlink.link("add", ifname=port, kind="veth", peer={"ifname": INSIDE, "net_ns_pid": keeper})
        else:
            self._netlink.link("set", index=self._index(request.tap), net_ns_pid=keeper)
        self._netlink.link("set", index=self._index(port), master=self._index(request.bridge), state="up")
        with NetNS(f"/proc/{keeper}/ns/net", flags=0) as inside:
            if request.tap is not None:
                inside.link("set", index=inside.link_lookup(ifname=request.tap)[0], ifname=INSIDE)
            for name in ("lo", INSIDE):
                inside.link("set", index=inside.link_lookup(ifname=name)[0], state="up")
            inside.addr("add", index=inside.link_lookup(ifname=INSIDE)[0], address=request.address, prefixlen=PREFIX)

    def _retransmit(self, keeper: int, address: str, metrics: dict[str, int], router: str | None) -> None:
        with NetNS(f"/proc/{keeper}/ns/net", flags=0) as inside:
            subnet = ip_interface(f"{address}/{PREFIX}").network
            inside.route(
                "replace", dst=str(subnet), oif=inside.link_lookup(ifname=INSIDE)[0], prefsrc=address,
                scope=_LINK_SCOPE, proto=_KERNEL_ROUTE, metrics=metrics,
            )  # fmt: skip
            if router is not None:
                inside.route("replace", dst="default", gateway=router, metrics=metrics)

    def _limit(self, direction: str, netlink: IPRoute | NetNS, name: str, port: str, rate_bps: int | None) -> None:
        """Limit what leaves through this interface."""
        index = netlink.link_lookup(ifname=name)[0]
        if (port, direction) in self._limited:
            netlink.tc("del", index=index, handle=_ROOT_HANDLE, parent=0xFFFFFFFF)
            self._limited.discard((port, direction))
        if rate_bps == 0:
            return
        rate_bytes, burst_bytes = (_LEAST_RATE_BYTES, _NO_FRAME_BYTES) if rate_bps is None else (
            rate_bps // 8, _BURST_BYTES
        )  # fmt: skip
        netlink.tc(
            "add", "tbf", index=index, handle=_ROOT_HANDLE,
            rate=rate_bytes, burst=burst_bytes, latency=_QUEUE_LATENCY,
        )  # fmt: skip
        self._limited.add((port, direction))

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
