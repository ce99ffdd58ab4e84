"""How do the lines of one chart differ, also in print and for people who do not see colours?"""

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
