"""What does a network look like?

An SVG that stands alone: nodes by type, their listeners, links with costs, and a dot at the end that opens the
connection. Links between routers are solid, links to brokers dashed. In a directed network, arrows show where messages
go, and links say what they are and what crosses them. The HTML page is that picture with a table of listeners and
connectors. Computes no positions and checks nothing.
"""

from html import escape

from crescendo.report.formats import plural
from crescendo.report.plots.network_picture import DrawnLink, DrawnNode, network_svg
from crescendo.topology.generate import Network, wired_links
from crescendo.topology.graph import BROKER, CLIENT, ROUTER, GraphLink, GraphNode
from crescendo.topology.network_check import NetworkFinding
from crescendo.topology.node_positions import positions

_MOST_LABELLED = 12
"""Above this number of links, what is written on them would cover the picture."""

_MOST_ADDRESSES = 3


def svg_of(network: Network) -> str:
    """The picture as SVG."""
    nodes = [DrawnNode(node.id, node.type, _below(node), _listeners(network, node)) for node in network.graph.nodes]
    return network_svg(nodes, _links(network), positions(network.graph), _title(network))


def _links(network: Network) -> list[DrawnLink]:
    opened = {id(each.link): each for each in wired_links(network)}
    types = {node.id: node.type for node in network.graph.nodes}
    is_clear = len(network.graph.links) <= _MOST_LABELLED
    links = []
    for link in network.graph.links:
        found, ends = opened.get(id(link)), {types[link.source], types[link.target]}
        links.append(
            DrawnLink(
                link.ends,
                link.cost,
                dashed=ends != {ROUTER},
                arrow=network.graph.directed,
                opened_by=None if found is None else found.opener.id,
                faulty=found is None and CLIENT not in ends,
                text=_label(link) if is_clear else (),
            )
        )
    return links


def _label(link: GraphLink) -> list[str]:
    shown = ", ".join(link.addresses[:_MOST_ADDRESSES]) + (", …" if len(link.addresses) > _MOST_ADDRESSES else "")
    return [text for text in (link.via, shown) if text]


def html_of(network: Network, findings: list[NetworkFinding]) -> str:
    """A page with the picture, what is wrong, and every listener and connector."""
    rows = []
    for node in network.graph.nodes:
        values = network.variables.get(node.id, {})
        for section in ("listener", "connector"):
            for entry in values.get(section, ()):
                shown = (node.id, section, entry.get("role", "normal"), f"{entry.get('host')}:{entry.get('port')}")
                cells = "".join(f"<td>{escape(str(cell))}</td>" for cell in (*shown, entry.get("cost", "")))
                rows.append(f"<tr>{cells}</tr>")
    problems = "".join(f"<li>{escape(str(each))}</li>" for each in findings)
    wrong = f"<h2>What would not work</h2><ul>{problems}</ul>" if findings else ""
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{escape(network.topology.name)}</title>'
        "<style>body{font-family:system-ui,sans-serif;margin:2rem;color:#222}svg{max-width:100%;height:auto}"
        "table{border-collapse:collapse;margin-top:1rem}td,th{padding:.25rem .8rem;text-align:left;"
        "border-bottom:1px solid #ddd}</style>"
        f"<h1>{escape(network.topology.name)}</h1>{svg_of(network)}{wrong}"
        "<table><tr><th>node</th><th>section</th><th>role</th><th>host and port</th><th>cost</th></tr>"
        f"{''.join(rows)}</table></html>\n"
    )


def _title(network: Network) -> str:
    routers = sum(node.type == ROUTER for node in network.graph.nodes)
    brokers = sum(node.type == BROKER for node in network.graph.nodes)
    links = len(network.graph.links)
    counted = [plural(routers, "router"), plural(brokers, "broker"), plural(links, "link")]
    return f"{network.topology.name}: " + ", ".join(text for text in counted if not text.startswith("0 "))


def _below(node: GraphNode) -> str:
    place = node.address if node.address != node.id else node.type
    return " · ".join(filter(None, (node.program, place)))


def _listeners(network: Network, node: GraphNode) -> list[str]:
    entries = network.variables.get(node.id, {}).get("listener", ())
    return [f"{entry.get('role', 'normal')} :{entry.get('port')}" for entry in entries]
