"""How can readers distinguish the lines of one chart, also in print and without seeing colours?"""

LINE_STYLES = (
    ("blue", "solid"),
    ("orange", "7px,4px"),
    ("green", "2px,2px"),
    ("purple", "solid"),
    ("muted", "7px,4px"),
    ("blue", "2px,3px"),
)
"""Tone and dash of each line, in the order in which lines are drawn."""

LINES_DRAWN = len(LINE_STYLES)

_TONES = ("blue", "orange", "pass", "fail", "muted", "invalid")
_DASHES = ("solid", "7px,4px", "2px,3px", "9px,3px,2px,3px")


def line_style(number: int) -> tuple[str, str]:
    """Tone and dash of one of many lines: colours repeat with other dashes."""
    return _TONES[number % len(_TONES)], _DASHES[number // len(_TONES) % len(_DASHES)]
