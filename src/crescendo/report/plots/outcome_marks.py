"""How are outcomes drawn, so that readers can distinguish them without colours?"""

from typing import Any

from crescendo.model.verdict import Outcome

_STYLES = {
    Outcome.PASS: ("pass", "circle"),
    Outcome.FAIL: ("fail", "x"),
    Outcome.INVALID: ("invalid", "diamond-open"),
}


def outcome_marks(
    outcome: Outcome, x: list[float], y: list[float], *, hover: str, name: str = "", legend: bool = True
) -> dict[str, Any]:
    """Points of one outcome."""
    tone, symbol = _STYLES[outcome]
    return {
        "type": "scatter",
        "mode": "markers",
        "name": name or str(outcome),
        "x": x,
        "y": y,
        "line": {},
        "marker": {"size": 10, "symbol": symbol},
        "meta": {"tone": tone},
        "showlegend": legend,
        "hovertemplate": f"{hover}<extra>{name or outcome}</extra>",
    }
