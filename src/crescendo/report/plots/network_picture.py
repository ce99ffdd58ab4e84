"""How is a network drawn?

Boxes for nodes, lines for links, in SVG that stands alone; links between the same two nodes bend apart. The caller says
where each node stands and what is written on it, so that one drawing serves the picture of a plan and that of a run.
Measures nothing.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

Point = tuple[float, float]
WIDTH, MARGIN = 150, 40
_STEP_X, _STEP_Y = 250, 130
_HEADING, _LINE = 44, 15
_GAP = 3
_BOW = 34  # how far apart links between the same two nodes are, in their middle
_FILLS = {"router": ("#e8f1fb", "#2463a8"), "broker": ("#fdf1e3", "#b5651d"), "client": ("#f1f1f1", "#777777")}
_STYLE = (
    "text{font-family:system-ui,'Segoe UI',Helvetica,Arial,sans-serif}"
    ".name{font-size:15px;font-weight:600}.small{font-size:11px;fill:#555}.cost{font-size:12px;font-weight:600}"
    ".link-text{font-size:11px;fill:#555;stroke:#fff;stroke-width:4px;paint-order:stroke}"
)
_ARROW = (
    '<defs><marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
    '<path d="M0 0 L8 4 L0 8 z" fill="#555"/></marker></defs>'
)


@dataclass(frozen=True)
class DrawnNode:
    """One box: its name, a line below it, and more lines."""

    id: str
    type: str
    below: str
    lines: Sequence[str] = ()

    @property
    def height(self) -> float:
        return _HEADING + _LINE * len(self.lines)


@dataclass(frozen=True)
class DrawnLink:
    """One line, from its first end to its second. Faults are red; `text` is written below its middle.

    `arrow`: messages go from the first end to the second. `opened_by`: the end that connects has a dot.
    """

    ends: tuple[str, str]
    cost: int | None = None
    dashed: bool = False
    arrow: bool = False
    opened_by: str | None = None
    faulty: bool = False
    text: Sequence[str] = ()


def network_svg(
    nodes: Sequence[DrawnNode], links: Sequence[DrawnLink], positions: Mapping[str, Point], title: str
) -> str:
    """The picture. Positions are in units of the usual distance between neighbours."""
    heights = {node.id: node.height for node in nodes}
    places = _scaled(positions, max(heights.values(), default=0))
    width = max((x for x, _ in places.values()), default=0) + WIDTH / 2 + MARGIN
    height = max((y + heights[name] / 2 for name, (_, y) in places.items()), default=0) + MARGIN + 26
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" '
        f'width="{width:.0f}" height="{height:.0f}" role="img" aria-label="{escape(title)}">',
        f"<style>{_STYLE}</style>",
        _ARROW,
        '<rect width="100%" height="100%" fill="#ffffff"/>',
        *(_line(link, places, heights, bow) for link, bow in _bent(links)),
        *(_box(node, places[node.id]) for node in nodes),
        f'<text class="small" x="{MARGIN}" y="{height - 14:.0f}">{escape(_with_legend(title, links))}</text></svg>',
    ]
    return "\n".join(parts) + "\n"


def _scaled(found: Mapping[str, Point], tallest: float) -> dict[str, Point]:
    left, top = (min((place[axis] for place in found.values()), default=0) for axis in (0, 1))
    step_y = max(_STEP_Y, tallest + 50)
    return {
        name: (MARGIN + WIDTH / 2 + (x - left) * _STEP_X, MARGIN + tallest / 2 + (y - top) * step_y)
        for name, (x, y) in found.items()
    }


def _text(style: str, x: float, y: float, text: str) -> str:
    return f'<text class="{style}" x="{x:.0f}" y="{y:.0f}" text-anchor="middle">{escape(text)}</text>'


def _box(node: DrawnNode, place: Point) -> str:
    x, y = place[0] - WIDTH / 2, place[1] - node.height / 2
    fill, edge = _FILLS[node.type]
    lines = [_text("name", place[0], y + 20, node.id), _text("small", place[0], y + 35, node.below)]
    lines += [_text("small", place[0], y + 50 + _LINE * at, text) for at, text in enumerate(node.lines)]
    box = (
        f'<rect x="{x:.0f}" y="{y:.0f}" width="{WIDTH}" height="{node.height:.0f}" '
        f'rx="{12 if node.type == "router" else 3}" fill="{fill}" stroke="{edge}" stroke-width="1.5"/>'
    )
    return f'<g class="node {node.type}" id="node-{escape(node.id)}">{box}{"".join(lines)}</g>'


def _with_legend(title: str, links: Sequence[DrawnLink]) -> str:
    shown = [title]
    if any(link.arrow for link in links):
        shown.append("→ messages")
    if any(link.opened_by for link in links):
        shown.append("● opens the connection")
    return " · ".join(shown)


def _bent(links: Sequence[DrawnLink]) -> list[tuple[DrawnLink, float]]:
    """Every link with how far its middle is from the straight line, in pixels, to the right of its direction."""
    of_pair = Counter(frozenset(link.ends) for link in links)
    drawn: Counter[frozenset[str]] = Counter()
    found = []
    for link in links:
        pair = frozenset(link.ends)
        bow = (drawn[pair] - (of_pair[pair] - 1) / 2) * _BOW
        drawn[pair] += 1
        found.append((link, bow if link.ends == tuple(sorted(link.ends)) else -bow))
    return found


def _line(link: DrawnLink, places: Mapping[str, Point], heights: Mapping[str, float], bow: float) -> str:
    first, second = link.ends
    middle = _beside(places[first], places[second], 2 * bow)  # the curve comes half as near to it
    start = _border(places[first], middle, heights[first])
    has_both = link.arrow and link.opened_by == second  # the point of the arrow is before the dot
    end = _border(places[second], middle, heights[second], _GAP + 7 if has_both else _GAP)
    dashed = ' stroke-dasharray="6 4"' if link.dashed else ""
    arrow = ' marker-end="url(#arrow)"' if link.arrow else ""
    colour = "#c62828" if link.faulty else "#555"
    bend = f"Q{middle[0]:.0f} {middle[1]:.0f} " if bow else "L"
    parts = [
        f'<path d="M{start[0]:.0f} {start[1]:.0f} {bend}{end[0]:.0f} {end[1]:.0f}" fill="none" stroke="{colour}" '
        f'stroke-width="1.6"{dashed}{arrow}/>'
    ]
    if link.opened_by is not None:
        x, y = _border(places[link.opened_by], middle, heights[link.opened_by])
        parts.append(f'<circle class="opener" cx="{x:.0f}" cy="{y:.0f}" r="4" fill="{colour}"/>')
    x, y = ((start[at] + end[at] + 2 * middle[at]) / 4 if bow else (start[at] + end[at]) / 2 for at in (0, 1))
    if link.cost is not None:
        parts.append(f'<circle cx="{x:.0f}" cy="{y:.0f}" r="12" fill="#fff" stroke="{colour}"/>')
        parts.append(_text("cost", x, y + 4, str(link.cost)))
    below = y + (26 if link.cost is not None else 14)
    if bow and abs(places[first][1] - places[second][1]) < _STEP_Y / 2 and y < (start[1] + end[1]) / 2:
        below = y - 6 - _LINE * (len(link.text) - 1)  # above the upper curve
    parts += [_text("link-text", x, below + _LINE * at, text) for at, text in enumerate(link.text)]
    return f'<g class="link">{"".join(parts)}</g>'


def _beside(first: Point, second: Point, distance: float) -> Point:
    """The point beside the middle between two others, to the right of the way from one to the other."""
    dx, dy = second[0] - first[0], second[1] - first[1]
    length = math.hypot(dx, dy) or 1.0
    return (first[0] + second[0]) / 2 - dy / length * distance, (first[1] + second[1]) / 2 + dx / length * distance


def _border(inside: Point, towards: Point, height: float, gap: float = _GAP) -> Point:
    """Where the line from one node to another leaves its box."""
    dx, dy = towards[0] - inside[0], towards[1] - inside[1]
    scale = min(
        (WIDTH / 2 + gap) / abs(dx) if dx else float("inf"), (height / 2 + gap) / abs(dy) if dy else float("inf"), 1.0
    )
    return inside[0] + dx * scale, inside[1] + dy * scale
