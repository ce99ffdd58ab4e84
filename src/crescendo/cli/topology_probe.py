"""The verb `topology probe`: what a way through a network does to messages, one by one."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from crescendo.cli.options import Json

if TYPE_CHECKING:
    from crescendo.topology.link_fidelity import LinkFidelity


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
        bool, typer.Option("--cut", help="Cut every link for a moment after a third of the messages.")
    ] = False,
    as_json: Json = False,
) -> int:
    """Start the network here, send messages of every kind through it, and say what became of them."""
    from crescendo.cli.terminal import Progress
    from crescendo.topology.local_network import local_network
    from crescendo.topology.network_probe import chosen_ways, probe_network
    from crescendo.topology.topology_file import load_topology

    network = local_network(load_topology(file))
    ways = chosen_ways(network, str(file), address, source, target)
    with Progress() as progress:
        results = probe_network(network, ways, messages, progress, cut=cut)
    if as_json:
        print(msgspec.json.encode(results).decode())
    else:
        print("\n".join(line for found in results for line in lines_of(found)))
    return 0 if all(found.is_faithful for found in results) else 1


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
