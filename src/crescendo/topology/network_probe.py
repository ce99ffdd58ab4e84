"""What does a network do to messages, on every way through it?

Starts the network here, sends messages of every kind along each way, one way after the other, and ends it again. All
links can be cut once while messages cross them. How one way is probed is in `route_probe.py`.
"""

import contextlib
import tempfile
import threading
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from crescendo.model.errors import ConfigError, PeerError
from crescendo.model.suggestions import choice
from crescendo.topology.address_ways import Way, ways_of
from crescendo.topology.generate import Network
from crescendo.topology.link_fidelity import LinkFidelity
from crescendo.topology.link_proxy import LinkProxy, proxied_links
from crescendo.topology.local_network import running_network
from crescendo.topology.route_probe import probe_route, route_between

CUT_S = 2.0
"""How long links stay cut."""

_LINGER_S, _IDLE_S = 2.0, 20.0
_ADDRESS = "perf"
"""Where both ends are given and no address is."""


def probe_network(
    network: Network,
    ways: Mapping[str, Way],
    messages: int,
    progress: Callable[[str], None],
    *,
    cut: bool,
) -> list[LinkFidelity]:
    """Probe each way of a network that is placed on this machine. cut: cut every link after a third of the messages."""
    results = []
    with (
        tempfile.TemporaryDirectory(prefix="crescendo-topology-") as directory,
        proxied_links(network) as (proxied, proxies),
        running_network(proxied, Path(directory), progress) as running,
    ):
        every = {proxy for of_link in proxies.values() for proxy in of_link}  # links may share one
        for name, (first, last) in ways.items():
            progress(f"{messages:,} messages to {name}, from {first} to {last}")
            route = route_between(network.graph, running, (first, last), name)
            on_sent = _cut_after(messages // 3, every) if cut else lambda _: None
            try:
                found = probe_route(route, messages, linger_s=_LINGER_S, idle_s=_IDLE_S, on_sent=on_sent)
            except PeerError as err:
                raise ConfigError(f"{name}, from {first} to {last}: {err}") from err
            results.append(msgspec.structs.replace(found, cuts=int(cut)))
    return results


def chosen_ways(
    network: Network, where: str, address: str | None, source: str | None, target: str | None
) -> dict[str, Way]:
    """The ways to probe: all of the network, or those that options name."""
    for option, name in (("--from", source), ("--to", target)):
        if name is not None and name not in network.variables:
            raise ConfigError(f"{option} {name}: {where} has no such node; {choice(name, list(network.variables))}")
    if source is not None and target is not None:
        return {address or _ADDRESS: (source, target)}
    known = ways_of(network.graph)
    if address is not None:
        known = {address: known[address]} if address in known else {}
    if not known:
        raise ConfigError(
            f"{where}: its links do not say where {address or 'messages'} enters and leaves; give --from and --to"
        )
    return {name: (source or first, target or last) for name, (first, last) in known.items()}


def _cut_after(messages: int, proxies: set[LinkProxy]) -> Callable[[int], None]:
    """Called with how many were sent: cuts every link once, and restores it after a while."""

    def restore() -> None:
        with contextlib.suppress(OSError):  # the network may have been stopped meanwhile
            for proxy in proxies:
                proxy.restore()

    def on_sent(count: int) -> None:
        if count == messages:
            for proxy in proxies:
                proxy.cut()
            timer = threading.Timer(CUT_S, restore)
            timer.daemon = True
            timer.start()

    return on_sent
