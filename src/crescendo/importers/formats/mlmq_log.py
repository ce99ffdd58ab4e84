"""How are the performance logs of MLMQ read?

The first line describes the client or broker, then come lines of `duration;time;action;context`. The time is the end of
the action: milliseconds since 1970, or `yyyyMMddHHmmss` in older logs. Durations are milliseconds, unless the first
line has `DurationUnit[us]`. Every line is a span. Does not interpret actions: their names are kept as they are.
"""

import re
from itertools import groupby

import msgspec
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from crescendo.importers.format import (
    REASON,
    SOURCE,
    TEXT,
    Event,
    Format,
    ImportOptions,
    ImportResult,
    SourceFile,
    Workspace,
    first_line,
)
from crescendo.importers.lines import first_fault, parse_lines, skip_when, small_frame
from crescendo.importers.times import MS_NS, US_NS, calendar_time, epoch_ms
from crescendo.record.schema import SPANS

LOG = "log"
_SETTING = r"\w+\[[^\]]*\]"
CONFIGURATION = rf"^(\w*Configuration\b.*|({_SETTING}\s*)+)$"
_LINE = re.compile(r"-?[0-9]+;[0-9]+;[^;]+")
_UNIT = re.compile(r"\bDurationUnit\[us\]")
_OUTCOME = r"(?i)#(ok|error|fail\w*|timeout\w*)(?:#|$)"
_CLIENTS = r"\bC\[([0-9]{1,9})\]"
_NS_PER_UNIT = "_ns_per_unit"


def kind_of(_name: str, head: bytes) -> str | None:
    line = first_line(head)
    return LOG if re.match(CONFIGURATION, line) or _LINE.match(line) else None


def read_sources(workspace: Workspace, sources: list[SourceFile], _options: ImportOptions) -> ImportResult:
    parsed = parse_lines(workspace, LOG, sources, with_spans)
    units = [{SOURCE: source.number, _NS_PER_UNIT: _ns_per_unit(source), "label": source.label} for source in sources]
    ddl = f"{SOURCE} INT, {_NS_PER_UNIT} BIGINT, label STRING"
    spans = parsed.rows.join(F.broadcast(small_frame(workspace.spark, ddl, units)), on=SOURCE, how="inner").select(
        "t_ns",
        F.col("label").alias("source"),
        "action",
        (F.col("duration") * F.col(_NS_PER_UNIT)).alias("duration_ns"),
        "value",
        "outcome",
        "detail",
    )
    return ImportResult(
        resolution_ns=MS_NS,
        frames=[(SPANS, spans)],
        rejects=parsed.rejects,
        records=parsed.lines,
        events=[event for source in sources for event in _configuration(source)],
        caveats=["a performance log contains actions and their durations, no messages: there is no ledger"],
    )


def with_spans(lines: DataFrame) -> DataFrame:
    """The columns of a span, with its duration in the unit of its file."""
    cells = F.split(F.col(TEXT), ";", 4)
    duration, time, action = (F.trim(F.get(cells, F.lit(index))) for index in range(3))
    t_ns = F.when(time.rlike("^[0-9]{14}$"), calendar_time(time, "yyyyMMddHHmmss")).otherwise(epoch_ms(time))
    clients = F.regexp_extract(TEXT, _CLIENTS, 1)
    reason = first_fault(
        (F.size(cells) < 3, "fewer than three columns: duration;time;action;context"),
        (~duration.rlike("^-?[0-9]{1,12}$"), "the duration is not a whole number"),
        (t_ns.isNull(), "the time is neither milliseconds since 1970 nor yyyyMMddHHmmss"),
        (action == "", "the action has no name"),
    )
    return lines.withColumns(
        {
            REASON: skip_when(F.col(TEXT).rlike(CONFIGURATION), reason),
            "t_ns": t_ns,
            "action": action,
            "duration": duration.try_cast("long"),
            "value": clients.try_cast("double"),
            "outcome": F.lower(F.regexp_extract(action, _OUTCOME, 1)),
            "detail": F.trim(F.get(cells, F.lit(3))),
        }
    )


def _ns_per_unit(source: SourceFile) -> int:
    return US_NS if _UNIT.search(first_line(source.head)) else MS_NS


def _configuration(source: SourceFile) -> list[Event]:
    """The first lines, which describe the writer of the log, as an event."""
    lines = [line for line in source.head.decode("utf-8", "replace").splitlines() if line.strip()]
    described = next((list(group) for is_one, group in groupby(lines, _describes) if is_one), [])
    if not described or not _describes(lines[0]):
        return []
    return [(source.label, "configuration", msgspec.json.encode({"text": " ".join(described)}).decode())]


def _describes(line: str) -> bool:
    return re.match(CONFIGURATION, line) is not None


MLMQ_LOG = Format(
    name="mlmq-log",
    expected="a line that describes a configuration, or lines of duration;time;action;context",
    kind_of=kind_of,
    read_sources=read_sources,
)
