"""The verb `topology probe`: what a way through a network does to messages, one by one."""

import contextlib
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from crescendo.cli.options import Json
from crescendo.model.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from crescendo.topology.generate import Network
    from crescendo.topology.link_fidelity import LinkFidelity
    from crescendo.topology.link_proxy import LinkProxy

_CUT_S, _LINGER_S = 2.0, 2.0


def probe(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A topology file.")],
    address: Annotated[
        str | None, typer.Option("--address", help="One queue that crosses links. Default: each of them, one by one.")
    ] = None,
    source: Annotated[
        str | None, typer.Option("--from", metavar="NODE", help="Where messages enter. Default: where links begin.")
    ] = None,
    target: Annotated[
        str | None, typer.Option("--to", metavar="NODE", help="Where messages leave. Default: where links end.")
    ] = None,
    messages: Annotated[int, typer.Option("--messages", min=1, max=1_000_000)] = 2000,
    cut: Annotated[
        bool, typer.Option("--cut", help=f"Cut every link for {_CUT_S:g} s after a third of the messages.")
    ] = False,
    as_json: Json = False,
) -> int:
    """Start the network here, send messages of every kind through it, and say what became of them."""
    from crescendo.cli.terminal import Progress
    from crescendo.model.errors import PeerError
    from crescendo.topology.link_proxy import proxied_links
    from crescendo.topology.local_network import local_network, running_network
    from crescendo.topology.route_probe import probe_route, route_between
    from crescendo.topology.topology_file import load_topology

    network = local_network(load_topology(file))
    ways = _ways(network, file, address, source, target)
    results: list[LinkFidelity] = []
    with (
        tempfile.TemporaryDirectory(prefix="crescendo-topology-") as directory,
        proxied_links(network) as (proxied, proxies),
        Progress() as progress,
        running_network(proxied, Path(directory), progress) as running,
    ):
        for name, (first, last) in ways.items():
            progress(f"{messages:,} messages to {name}, from {first} to {last}")
            route = route_between(network.graph, running, (first, last), name)
            cutter = _cutter(proxies, messages // 3) if cut else None
            try:
                found = probe_route(
                    route, messages, linger_s=_LINGER_S, idle_s=20.0, on_sent=cutter or (lambda _: None)
                )
            except PeerError as err:
                raise ConfigError(f"{name}, from {first} to {last}: {err}") from err
            results.append(msgspec.structs.replace(found, cuts=int(cut)))
    if as_json:
        print(msgspec.json.encode(results).decode())
    else:
        print("\n".join(line for found in results for line in lines_of(found)))
    return 0 if all(found.is_faithful for found in results) else 1


def _ways(
    network: "Network", file: Path, address: str | None, source: str | None, target: str | None
) -> "dict[str, tuple[str, str]]":
    from crescendo.model.suggestions import choice
    from crescendo.topology.address_ways import ways_of

    for option, name in (("--from", source), ("--to", target)):
        if name is not None and name not in network.variables:
            raise ConfigError(f"{option} {name}: {file} has no such node; {choice(name, list(network.variables))}")
    if source is not None and target is not None:
        return {address or "perf": (source, target)}
    known = ways_of(network.graph)
    if address is not None and address in known:
        known = {address: known[address]}
    elif address is not None or not known:
        raise ConfigError(
            f"{file}: its links do not say where {address or 'messages'} enters and leaves; give --from and --to"
        )
    return {name: (source or first, target or last) for name, (first, last) in known.items()}


def _cutter(proxies: "Mapping[tuple[str, str], list[LinkProxy]]", after: int) -> "Callable[[int], None]":
    import threading

    every = {proxy for of_link in proxies.values() for proxy in of_link}  # links may share one

    def restore() -> None:
        with contextlib.suppress(OSError):  # the network may have been stopped meanwhile
            for proxy in every:
                proxy.restore()

    def on_sent(count: int) -> None:
        if count == after:
            for proxy in every:
                proxy.cut()
            timer = threading.Timer(_CUT_S, restore)
            timer.daemon = True
            timer.start()

    return on_sent


def lines_of(found: "LinkFidelity") -> list[str]:
    """What a person reads."""
    lines = [
        f"{found.source} to {found.target}, {found.address}: {found.arrived:,} of {found.sent:,} messages arrived",
        f"  lost {found.lost:,} · duplicated {found.duplicated:,} · reordered {found.reordered:,}"
        + (f" · sent again {found.resent:,}" if found.resent else "")
        + (" · the links were cut" if found.cuts else ""),
    ]
    for body in found.bodies:
        became = ", ".join(f"{kind} {count:,}" for kind, count in sorted(body.arrived_as.items())) or "nothing"
        lines.append(f"  body {body.sent_as:13} {body.equal:,} of {body.messages:,} equal; arrived as: {became}")
    for how in ("kept", "changed", "dropped", "added"):
        if names := getattr(found, how):
            lines.append(f"  properties {how}: {', '.join(names)}")
    for section, count in sorted(found.invalid.items()):
        lines.append(f"  not valid AMQP: {section} of {count:,} messages")
    return lines
