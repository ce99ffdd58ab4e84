"""What do the links of a lab carry, beside loopback?

TCP throughput and round trips between two hosts by cable (a pair of virtual interfaces), through a clean packet link
(TAP) and a clean TCP link, and on the loopback interface of one host, in one run.
"""

from crescendo.lab.host_network import HostNetwork
from crescendo.lab.network_baseline import NetworkBaseline, measure_network
from crescendo.lab.packet_link_program import TUN_DEVICE
from crescendo.model.errors import ConfigError

SECONDS = 2.0


def main() -> None:
    with HostNetwork() as network:
        server, cable = network.add("server"), network.add("cable")
        loopback = measure_network(server, server, SECONDS)
        _print("loopback of one host", loopback, loopback)
        _print("cable (veth)", measure_network(cable, server, SECONDS), loopback)
        proxied = network.add("proxied")
        proxied.link_over_tcp(server)
        _print("clean TCP link", measure_network(proxied, server, SECONDS), loopback)
        try:
            tap = network.add("tap", packet_link=True)
        except ConfigError as err:
            print(f"packet link: {err}; {TUN_DEVICE} is needed")
            return
        _print("clean packet link (TAP)", measure_network(tap, server, SECONDS), loopback)


def _print(name: str, found: NetworkBaseline, loopback: NetworkBaseline) -> None:
    print(
        f"{name:24} up {found.up_bps / 1e6:>7,.0f} Mbit/s ({found.up_bps / loopback.up_bps:6.1%} of loopback), "
        f"down {found.down_bps / 1e6:>7,.0f}, "
        f"both {found.both_up_bps / 1e6:>6,.0f} + {found.both_down_bps / 1e6:<6,.0f} "
        f"round trip {found.round_trip_ns / 1e3:.0f} µs"
    )


if __name__ == "__main__":
    main()
