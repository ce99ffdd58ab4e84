"""How is a network drawn?

Boxes for nodes, lines for links, in SVG that stands alone. The caller says where each node stands and what is written
on it, so that one drawing serves the picture of a plan and that of a run. Computes nothing.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

Point = tuple[float, float]
WIDTH, MARGIN = 150, 40
_STEP_X, _STEP_Y = 250, 130
_HEADING, _LINE = 44, 15
_FILLS = {"router": ("#e8f1fb", "#2463a8"), "broker": ("#fdf1e3", "#b5651d"), "client": ("#f1f1f1", "#777777")}
_STYLE = (
    "text{font-family:system-ui,'Segoe UI',Helvetica,Arial,sans-serif}"
    ".name{font-size:15px;font-weight:600}.small{font-size:11px;fill:#555}.cost{font-size:12px;font-weight:600}"
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
    """One line, from its first end to its second. Faults are red; `text` is written below its middle."""

    ends: tuple[str, str]
    cost: int | None = None
    dashed: bool = False
    arrow: bool = False
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
        *(_line(link, places, heights) for link in links),
        *(_box(node, places[node.id]) for node in nodes),
        f'<text class="small" x="{MARGIN}" y="{height - 14:.0f}">{escape(title)}</text></svg>',
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


def _line(link: DrawnLink, places: Mapping[str, Point], heights: Mapping[str, float]) -> str:
    first, second = link.ends
    start = _border(places[first], places[second], heights[first])
    end = _border(places[second], places[first], heights[second])
    dashed = ' stroke-dasharray="6 4"' if link.dashed else ""
    arrow = ' marker-end="url(#arrow)"' if link.arrow else ""
    colour = "#c62828" if link.faulty else "#555"
    parts = [
        f'<line x1="{start[0]:.0f}" y1="{start[1]:.0f}" x2="{end[0]:.0f}" y2="{end[1]:.0f}" stroke="{colour}" '
        f'stroke-width="1.6"{dashed}{arrow}/>'
    ]
    x, y = (start[0] + end[0]) / 2, (start[1] + end[1]) / 2
    if link.cost is not None:
        parts.append(f'<circle cx="{x:.0f}" cy="{y:.0f}" r="12" fill="#fff" stroke="{colour}"/>')
        parts.append(_text("cost", x, y + 4, str(link.cost)))
    parts += [_text("small", x, y + 26 + _LINE * at, text) for at, text in enumerate(link.text)]
    return f'<g class="link">{"".join(parts)}</g>'


def _border(inside: Point, towards: Point, height: float) -> Point:
    """Where the line from one node to another leaves its box."""
    dx, dy = towards[0] - inside[0], towards[1] - inside[1]
    scale = min(
        (WIDTH / 2 + 3) / abs(dx) if dx else float("inf"), (height / 2 + 3) / abs(dy) if dy else float("inf"), 1.0
    )
    return inside[0] + dx * scale, inside[1] + dy * scale
