"""What was broken on purpose, and what followed?

One paragraph per fault with its numbers, and a table of all of them. Every number comes from the pipeline; this module
only words them.
"""

from crescendo.model.units import format_ns
from crescendo.record.tables import RECOVERY, RecoveryRow
from crescendo.report import formats
from crescendo.report.data.small_tables import SmallTables
from crescendo.report.sections.evidence import Grid
from crescendo.report.sections.section import ROWS_SHOWN, Section

_DONE = {
    "restart": "{on} was restarted",
    "stop": "{on} was shut down",
    "kill": "{on} was killed",
    "pause": "{on} was paused",
    "cpu": "{on} got too little processor time",
    "memory": "{on} got too little memory",
    "descriptors": "{on} ran out of file descriptors",
    "disk": "the disk of {on} was broken",
    "clock": "the wall clock of {on} jumped",
    "handler": "{on} ran a handler",
    "disconnect": "the connections of {on} were reset",
    "command": "a command was run on {on}",
    "cut": "the link of {on} was cut",
    "impair": "the link of {on} was impaired",
    "handoff": "{on} moved to another access point",
}


def faults_section(tables: SmallTables) -> Section | None:
    """None if no fault was caused."""
    rows = tables.rows(RECOVERY)
    if not rows:
        return None
    lost = sum(row.lost for row in rows)
    worst = max(rows, key=lambda row: row.outage_ns or 0)
    around = "it" if len(rows) == 1 else "them"
    lead = f"{formats.plural(len(rows), 'fault')} on purpose; {formats.plural(lost, 'message')} lost around {around}."
    if worst.outage_ns:
        lead += f" The longest outage lasted {format_ns(worst.outage_ns)}."
    paragraphs = tuple(_paragraph(number, row, tables) for number, row in enumerate(rows[:ROWS_SHOWN], 1))
    return Section(
        "faults",
        "Faults and recovery",
        lead,
        None,
        {"Faults": _grid(rows[:ROWS_SHOWN], tables)},
        max(len(rows) - ROWS_SHOWN, 0),
        paragraphs=paragraphs,
    )


def _paragraph(number: int, row: RecoveryRow, tables: SmallTables) -> str:
    on = "The system" if row.target == "system" else row.target
    done = _DONE.get(row.action, f"{row.action} was done to {{on}}").format(on=on)
    lasted = "until the run ended" if row.end_ns is None else f"for {format_ns(row.end_ns - row.start_ns)}"
    means = f" ({row.means})" if row.means else ""
    if not done.startswith(row.target):  # a name stays as it is
        done = f"{done[:1].upper()}{done[1:]}"
    sentences = [f"Fault {number}: {done}{means} at {tables.second(row.start_ns):,.2f} s, {lasted}.", _noticed(row)]
    sentences += [_stopped(row), _counted(row), _latency(row)]
    return " ".join(sentence for sentence in sentences if sentence)


def _noticed(row: RecoveryRow) -> str:
    if row.detected_ns is None:
        return "No connection of the load was lost."
    return f"The first connection of the load was lost after {format_ns(row.detected_ns)}."


def _stopped(row: RecoveryRow) -> str:
    if row.outage_ns is None:
        return "Deliveries did not stop."
    if not row.resumed:
        return f"Deliveries stopped for {format_ns(row.outage_ns)} and did not resume while messages were due."
    rate = "the rate did not return to 95 %" if row.recovered_ns is None else (
        f"the rate was back at 95 % after {format_ns(row.recovered_ns)}"
    )  # fmt: skip
    backlog = "the backlog did not return to what it was" if row.caught_up_ns is None else (
        f"the backlog was as before after {format_ns(row.caught_up_ns)}"
    )  # fmt: skip
    return f"Deliveries stopped for {format_ns(row.outage_ns)}; {rate}, and {backlog}."


def _counted(row: RecoveryRow) -> str:
    lost = f"Lost: {formats.count(row.lost)}"
    if row.lost:
        lost += f" ({formats.count(row.lost_acknowledged)} of them acknowledged)"
    others = {
        "never offered": row.never_offered,
        "redelivered": row.redelivered,
        "duplicated": row.duplicated,
        "reordered": row.reordered,
    }
    return ", ".join([lost, *(f"{name}: {formats.count(value)}" for name, value in others.items())]) + "."


def _latency(row: RecoveryRow) -> str:
    known = {"before": row.p99_before_ns, "during": row.p99_during_ns, "after": row.p99_after_ns}
    values = [f"{format_ns(value)} {when}" for when, value in known.items() if value is not None]
    return f"p99: {', '.join(values)} it." if values else ""


def _grid(rows: list[RecoveryRow], tables: SmallTables) -> Grid:
    cells = [
        [
            row.action,
            row.target,
            f"{tables.second(row.start_ns):,.2f} s",
            formats.NOTHING if row.end_ns is None else format_ns(row.end_ns - row.start_ns),
            formats.nanoseconds(row.detected_ns),
            formats.nanoseconds(row.outage_ns),
            formats.nanoseconds(row.recovered_ns),
            formats.nanoseconds(row.caught_up_ns),
            formats.count(row.lost),
            formats.count(row.never_offered),
            formats.count(row.redelivered),
            formats.count(row.duplicated),
            formats.count(row.reordered),
            formats.nanoseconds(row.p99_during_ns),
            formats.nanoseconds(row.p99_after_ns),
        ]
        for row in rows
    ]
    columns = [
        "Fault", "on", "at", "lasted", "noticed after", "outage", "95 % of the rate after", "caught up after", "lost",
        "never offered", "redelivered", "duplicated", "reordered", "p99 during", "after",
    ]  # fmt: skip
    return Grid(columns, cells, names=2)
