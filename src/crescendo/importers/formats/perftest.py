"""How is the CSV file of RabbitMQ's PerfTest read?

One line per period: the id of the test, seconds since its start, rates, and latency percentiles. It contains neither
messages nor counts: a message count is the rate times the length of the period, rounded, and goes into `rates`; all
else goes into `readings` under its column name. Percentiles of periods cannot be merged, so there is no histogram.
"""

from collections import defaultdict
from functools import reduce

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from crescendo.importers.format import (
    LINE,
    REASON,
    SOURCE,
    TEXT,
    Format,
    ImportOptions,
    ImportResult,
    SourceFile,
    Workspace,
    first_line,
    peer_record,
)
from crescendo.importers.lines import Parse, first_fault, parse_lines, skip_when, small_frame
from crescendo.importers.times import MS_NS
from crescendo.record.schema import RATES, READINGS

CSV = "periods"
_FIRST = "id,time (s),"
_ROLES = {"published (msg/s)": "sender", "received (msg/s)": "receiver"}
_NUMBER = r"^[0-9]{1,15}(\.[0-9]{1,9})?$"
_LAST_S = 1e9


def kind_of(_name: str, head: bytes) -> str | None:
    line = first_line(head)
    return CSV if line.startswith(_FIRST) and "(msg/s)" in line else None


def read_sources(workspace: Workspace, sources: list[SourceFile], _options: ImportOptions) -> ImportResult:
    layouts: dict[str, list[SourceFile]] = defaultdict(list)
    for source in sources:
        layouts[first_line(source.head)].append(source)
    result = ImportResult(
        resolution_ns=MS_NS,
        caveats=[
            "PerfTest records rates and percentiles per period, no messages: counts are rates times periods; a ledger "
            "and histograms are not possible",
            "times are relative to the start of the test, which the file does not name",
        ],
    )
    rates, readings = [], []
    for number, (header, files) in enumerate(layouts.items()):
        columns = [column.strip() for column in header.split(",")][2:]
        parsed = parse_lines(workspace, f"{CSV}-{number}", files, _with_periods(header, len(columns)))
        labels = [{SOURCE: source.number, "label": source.label} for source in files]
        rows = parsed.rows.join(
            F.broadcast(small_frame(workspace.spark, f"{SOURCE} INT, label STRING", labels)), on=SOURCE, how="inner"
        ).withColumn("peer", F.concat_ws("@", "test", "label"))
        rates.append(_rates(rows, columns))
        readings.append(_readings(rows, columns))
        result.rejects += parsed.rejects
        result.records |= parsed.lines
        result.peers += [peer_record(source.label, "sender") for source in files]
    result.frames = [(RATES, reduce(DataFrame.unionByName, rates)), (READINGS, reduce(DataFrame.unionByName, readings))]
    return result


def _with_periods(header: str, values: int) -> Parse:
    def parse(lines: DataFrame) -> DataFrame:
        cells = F.split(F.col(TEXT), r"\s*,\s*")
        time = F.get(cells, F.lit(1))
        numbers = F.slice(cells, 3, values)
        t_s = F.when(time.rlike(_NUMBER), time).cast("double")
        reason = first_fault(
            (F.size(cells) != values + 2, f"not {values + 2} columns"),
            (t_s.isNull() | (t_s > _LAST_S), "the time is not seconds since the start"),
            (F.exists(numbers, lambda cell: (cell != "") & ~cell.rlike(_NUMBER)), "a column is not a number"),
        )
        return lines.withColumns(
            {
                REASON: skip_when(F.trim(TEXT) == header, reason),
                "test": F.get(cells, F.lit(0)),
                "t_s": t_s,
                "numbers": F.transform(numbers, lambda cell: F.when(cell.rlike(_NUMBER), cell).cast("double")),
            }
        )

    return parse


def _rates(rows: DataFrame, columns: list[str]) -> DataFrame:
    """A period starts at the previous line, the first at the start of the test; its row has the start time."""
    before_s = F.coalesce(F.lag("t_s").over(Window.partitionBy(SOURCE, "test").orderBy(LINE)), F.lit(0.0))
    periods = rows.withColumn("from_s", before_s)
    found = [(role, columns.index(name)) for name, role in _ROLES.items() if name in columns]
    counts_by_role = [
        periods.select(
            F.round(F.col("from_s") * 1e9).cast("long").alias("t_ns"),
            "peer",
            F.lit(role).alias("role"),
            F.round(F.get("numbers", F.lit(index)) * (F.col("t_s") - F.col("from_s"))).cast("long").alias("messages"),
        )
        for role, index in found
    ]
    counts = reduce(DataFrame.unionByName, counts_by_role)
    return counts.where("messages IS NOT NULL").repartition(1).sortWithinPartitions("peer", "role", "t_ns")


def _readings(rows: DataFrame, columns: list[str]) -> DataFrame:
    names = F.array(*(F.lit(column) for column in columns))
    return (
        rows.select(
            F.round(F.col("t_s") * 1e9).cast("long").alias("t_ns"),
            F.col("peer").alias("source"),
            F.lit("perftest").alias("entity"),
            F.explode(F.arrays_zip(names.alias("metric"), F.col("numbers").alias("value"))).alias("pair"),
        )
        .select("t_ns", "source", "entity", "pair.metric", "pair.value")
        .where("value IS NOT NULL")
    )


PERFTEST = Format(
    name="perftest",
    expected="a CSV file of RabbitMQ PerfTest (--output-file) that begins with id,time (s),published (msg/s)",
    kind_of=kind_of,
    read_sources=read_sources,
)
