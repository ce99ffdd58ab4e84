"""What do charts with one horizontal bar of mean times per name have in common?"""

from collections.abc import Sequence
from typing import Any


def mean_time_layout(names: Sequence[str]) -> dict[str, Any]:
    """Axes for bars at positions 0, 1, 2, from the bottom: two long names may be equal when they are shortened."""
    times = {
        "title": {"text": "mean time"},
        "tickformat": "~s",
        "ticksuffix": "s",
        "rangemode": "tozero",
        "nticks": 5,
        "tickangle": 0,
        "fixedrange": True,
    }
    named = {
        "title": {"text": ""},
        "tickvals": list(range(len(names))),
        "ticktext": list(names),
        "fixedrange": True,
    }
    return {"xaxis": times, "yaxis": named, "hovermode": "closest", "bargap": 0.35}
