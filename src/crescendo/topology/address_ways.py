"""Between which nodes does each address of a directed network travel?

From the one node where links with this address begin to the one where they end, over however many nodes between them.
An address with several beginnings or ends, or with none, has no such way.
"""

from crescendo.topology.graph import Graph

Way = tuple[str, str]


def ways_of(graph: Graph) -> dict[str, Way]:
    """The first and the last node of each address, in the order of the links."""
    if not graph.directed:
        return {}
    found: dict[str, Way] = {}
    for address in dict.fromkeys(address for link in graph.links for address in link.addresses):
        links = [link for link in graph.links if address in link.addresses]
        sources, targets = {link.source for link in links}, {link.target for link in links}
        first, last = sources - targets, targets - sources
        if len(first) == len(last) == 1:
            found[address] = (first.pop(), last.pop())
    return found
