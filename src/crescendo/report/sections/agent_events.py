"""What did agents do beside the system, and what did their handlers say?

One row per event of an agent: the source that it took, each handler that started and how it ended, and what handlers
reported themselves, with the traffic before and after. Every number comes from the pipeline; this module only words
them.
"""

import contextlib
import json
from typing import Any

import msgspec
from msgspec import Struct

from crescendo.record.schema import AGENT_EVENTS, AGENT_SOURCE, HANDLER_ENDED, HANDLER_STARTED
from crescendo.record.tables import EFFECTS, EffectRow
from crescendo.report import formats
from crescendo.report.data.small_tables import SmallTables
from crescendo.report.sections.evidence import Grid
from crescendo.report.sections.section import ROWS_SHOWN, Section

_TEXT_CHARACTERS = 200
_KNOWN = {"handler", "point", "command", "pid", "blob"}


class _HandlerDetail(Struct):
    """What the events about a handler have in common; an event of its own has other keys besides."""

    handler: str = formats.NOTHING
    command: str = ""
    parameters: dict[str, Any] = {}
    code: int | None = None
    reason: str = ""
    output: str = ""


def agents_section(tables: SmallTables) -> Section | None:
    """None if no agent took part."""
    rows = [row for row in tables.rows(EFFECTS) if row.kind in AGENT_EVENTS]
    if not rows:
        return None
    ended = [_detail(row) for row in rows if row.kind == HANDLER_ENDED]
    failed = sum(detail.code != 0 or bool(detail.reason) for detail in ended)
    names = sorted({row.source for row in rows})
    lead = f"{', '.join(names)}: {formats.plural(len(ended), 'handler')} ended, {failed} of them badly."
    grid = _grid(rows[:ROWS_SHOWN], tables)
    return Section("agents", "Agents", lead, None, {"Events of agents": grid}, max(len(rows) - ROWS_SHOWN, 0))


def _grid(rows: list[EffectRow], tables: SmallTables) -> Grid:
    cells = []
    for row in rows:
        cells.append(
            [
                row.kind,
                row.source,
                f"{tables.second(row.t_ns):,.2f} s",
                _detail(row).handler,
                _what(row),
                formats.rate(row.rate_before),
                formats.rate(row.rate_after),
            ]
        )
    columns = ["Event", "Agent", "at", "handler", "what", "msg/s before", "after"]
    times = [(tables.second(row.t_ns), tables.second(row.t_ns)) for row in rows]
    return Grid(columns, cells, names=5, scope="times", times=times)


def _what(row: EffectRow) -> str:
    detail = _detail(row)
    match row.kind:
        case _ if row.kind == AGENT_SOURCE:
            text = " ".join(str(value) for value in _keys(row).values())
        case _ if row.kind == HANDLER_STARTED:
            text = f"{detail.command} {json.dumps(detail.parameters)}"
        case _ if row.kind == HANDLER_ENDED:
            how = detail.reason or f"exit code {detail.code}"
            text = f"{how}: {detail.output.strip()}".rstrip(": ")
        case _:
            text = json.dumps({key: value for key, value in _keys(row).items() if key not in _KNOWN})
    return text if len(text) <= _TEXT_CHARACTERS else f"{text[:_TEXT_CHARACTERS]}…"


def _detail(row: EffectRow) -> _HandlerDetail:
    with contextlib.suppress(msgspec.MsgspecError):
        return msgspec.json.decode(row.detail, type=_HandlerDetail)
    return _HandlerDetail()


def _keys(row: EffectRow) -> dict[str, Any]:
    with contextlib.suppress(msgspec.MsgspecError):
        return msgspec.json.decode(row.detail, type=dict[str, Any])
    return {}
