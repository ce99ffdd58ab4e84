"""What did Maestro's inspectors record?

CSV files with a time, a name and one column per metric. Numbers become readings, under the metric names of our own
inspectors; texts become events of kind `texts` when they first appear and when they change. Columns are found by their
headings, so versions with other columns can be read too; an unknown heading keeps its name.
"""

import csv
from collections import defaultdict
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from crescendo.importers.format import (
    LINE,
    REASON,
    SOURCE,
    TEXT,
    ImportResult,
    SourceFile,
    Workspace,
    first_line,
    peer_record,
)
from crescendo.importers.lines import Parse, first_fault, parse_lines, skip_when, small_frame
from crescendo.importers.times import SECOND_NS, calendar_time
from crescendo.model.maestro import ALLOCATOR, CONNECTION, HEADINGS, MEMORY, QUEUE, ROUTER, ROUTER_LINK
from crescendo.record.schema import EVENTS, READINGS

SHEET = "sheet"
_FIRST = ["Timestamp", "Name"]
_NUMBER = r"^-?[0-9]{1,18}(\.[0-9]+)?$"
_BAD = "_bad"

ENTITY_PREFIXES = {
    "heap": MEMORY,
    "memory-areas": MEMORY,
    "queues": QUEUE,
    "general": ROUTER,
    "routerlink": ROUTER_LINK,
    "qdmemory": ALLOCATOR,
    "connections": CONNECTION,
}
"""File name -> entity prefix of its rows."""


@dataclass(frozen=True)
class SheetLayout:
    """Files whose rows have the same columns."""

    prefix: str
    headings: tuple[str, ...]
    columns: tuple[str, ...]
    sources: tuple[int, ...]

    def cells(self) -> Column:
        """The cells of a line; null when their number is wrong."""
        names = [f"c{index}" for index in range(len(self.columns))]
        options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _BAD, "escape": '"'}
        row = F.from_csv(F.col(TEXT), ", ".join(f"{name} STRING" for name in (*names, _BAD)), options)
        return F.when(row[_BAD].isNull(), F.array(*(F.coalesce(row[name], F.lit("")) for name in names)))

    def metrics(self) -> Column:
        known = {heading: names.split()[0] for heading, names in HEADINGS[self.prefix].items()}
        return F.array(*(F.lit(known.get(column, column)) for column in self.columns[2:]))

    def entity(self) -> Column:
        name = F.get("cells", F.lit(1))
        if self.prefix == CONNECTION and "Identity" in self.columns:
            # Connections have a number instead of a name.
            name = F.when(name == "", F.get("cells", F.lit(self.columns.index("Identity")))).otherwise(name)
        # Maestro writes Heap, our inspectors write heap.
        return F.concat(F.lit(self.prefix), F.lower(name) if self.prefix == MEMORY else name)


def is_sheet(name: str, head: bytes) -> bool:
    return _headings(head)[:2] == _FIRST and _entity_prefix(name) is not None


def read_sheets(workspace: Workspace, sources: list[SourceFile]) -> ImportResult:
    layouts = _layouts(sources)
    parsed = parse_lines(workspace, SHEET, sources, _with_cells(layouts))
    cells = _long(parsed.rows, layouts, sources)
    is_number = F.col("number").isNotNull()
    return ImportResult(
        resolution_ns=SECOND_NS,
        frames=[
            (READINGS, cells.where(is_number).withColumn("value", F.col("number"))),
            (EVENTS, _changes(cells.where(~is_number & (F.col("text") != "")))),
        ],
        rejects=parsed.rejects,
        records=parsed.lines,
        peers=[peer_record(name, "inspector") for name in sorted({source.folder for source in sources})],
        caveats=["the times of inspector files have no time zone and are read as UTC"],
    )


def _layouts(sources: list[SourceFile]) -> list[SheetLayout]:
    """Group the files by their columns."""
    found: dict[tuple[str, tuple[str, ...], tuple[str, ...]], list[int]] = defaultdict(list)
    for source in sources:
        prefix, headings = _entity_prefix(source.path.name) or "", tuple(_headings(source.head))
        columns = headings
        if prefix == ROUTER_LINK and _lacks_link_type(source, len(headings)):
            columns = tuple(heading for heading in headings if heading != "LinkType")  # Maestro itself writes such rows
        found[prefix, headings, columns].append(source.number)
    return [SheetLayout(*key, tuple(numbers)) for key, numbers in found.items()]


def _with_cells(layouts: list[SheetLayout]) -> Parse:
    def parse(lines: DataFrame) -> DataFrame:
        cells, header = F.lit(None), F.lit(None)
        for layout in layouts:
            mine = F.col(SOURCE).isin(list(layout.sources))
            cells = F.when(mine, layout.cells()).otherwise(cells)
            header = F.when(mine, F.lit(",".join(layout.headings))).otherwise(header)
        t_ns = calendar_time(F.get(F.col("cells"), F.lit(0)), "yyyy-MM-dd HH:mm:ss")
        reason = first_fault(
            (F.col("cells").isNull(), "not as many columns as headings, or an unclosed quote"),
            (t_ns.isNull(), "the time is not yyyy-MM-dd HH:mm:ss"),
        )
        parsed = lines.withColumn("cells", cells)
        return parsed.withColumns({REASON: skip_when(F.trim(TEXT) == header, reason), "t_ns": t_ns})

    return parse


def _long(rows: DataFrame, layouts: list[SheetLayout], sources: list[SourceFile]) -> DataFrame:
    """One row per cell, with its number if it is one."""
    inspectors = [{SOURCE: source.number, "inspector": source.folder} for source in sources]
    metrics, entity = F.lit(None), F.lit(None)
    for layout in layouts:
        mine = F.col(SOURCE).isin(list(layout.sources))
        metrics = F.when(mine, layout.metrics()).otherwise(metrics)
        entity = F.when(mine, layout.entity()).otherwise(entity)
    named = rows.join(
        F.broadcast(small_frame(rows.sparkSession, f"{SOURCE} INT, inspector STRING", inspectors)),
        on=SOURCE,
        how="inner",
    )
    cell = F.arrays_zip(metrics.alias("metric"), F.slice("cells", F.lit(3), F.size("cells") - 2).alias("text"))
    long = named.select(
        "t_ns", F.col("inspector").alias("source"), entity.alias("entity"), LINE, F.inline(cell).alias("metric", "text")
    )
    number = F.when(F.col("text").rlike(_NUMBER), F.col("text")).cast("double")
    return long.withColumn("number", number)


def _changes(texts: DataFrame) -> DataFrame:
    before = F.lag("text").over(Window.partitionBy("source", "entity", "metric").orderBy("t_ns", LINE))
    changed = texts.withColumn("before", before).where(F.col("before").isNull() | (F.col("before") != F.col("text")))
    detail = F.to_json(F.create_map("entity", F.create_map("metric", "text")))
    return (
        changed.select("t_ns", "source", F.lit("texts").alias("kind"), detail.alias("detail"))
        .repartition(1)
        .sortWithinPartitions("source", "t_ns", "detail")
    )


def _headings(head: bytes) -> list[str]:
    return next(csv.reader([first_line(head)]), [])


def _entity_prefix(name: str) -> str | None:
    return ENTITY_PREFIXES.get(name.lower().split(".")[0])


def _lacks_link_type(source: SourceFile, headings: int) -> bool:
    lines = source.head.decode("utf-8", "replace").splitlines()[1:]
    return any(len(row) == headings - 1 for row in csv.reader(lines[:1]))
