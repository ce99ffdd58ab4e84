"""Does the table of `watch` show a period whose parts are still missing as incomplete, not as an outage?"""

from io import StringIO

from rich.console import Console

from crescendo.cli.watch import _table
from crescendo.pipeline.live.snapshot import LiveTotals, Period, Snapshot


def test_figures_of_an_open_period_are_lower_bounds() -> None:
    second_ns = 10**9
    totals = LiveTotals(batch=1, sent=4000, received=2151, settled=4000, parts=3, late_parts=0, late_messages=0)
    periods = [
        Period(0, second_ns, True, sent=2000, received=2000, settled=2000),
        Period(second_ns, second_ns, False, sent=2000, received=151, settled=2000),
    ]
    text = StringIO()
    Console(file=text, width=140).print(_table(Snapshot("trial", periods, totals, 0), periods))
    whole, partial = (line for line in text.getvalue().splitlines() if ":" in line and "2,000" in line)
    assert "≥" not in whole
    assert "≥ 151" in partial
    assert partial.rstrip().endswith("incomplete")
