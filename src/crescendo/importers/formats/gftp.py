"""How many bytes did each gridFTP server move, and when?

Transfer logs of the Globus server: `DATE=… HOST=… START=… NBYTES=… TYPE=… CODE=…` in any order, with or without a
prefix. A transfer is a span that ends at DATE. The bytes of a server in a period are a reading; a transfer counts in
the period in which it ended, because only then it is logged. Names of users and files are not imported.
"""

from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from crescendo.importers.format import (
    REASON,
    TEXT,
    Format,
    ImportOptions,
    ImportResult,
    SourceFile,
    Workspace,
    first_line,
)
from crescendo.importers.lines import first_fault, parse_lines
from crescendo.importers.times import US_NS, calendar_time, unpadded_us, whole_number
from crescendo.record.schema import READINGS, SPANS

LOG = "transfers"
_REQUIRED = ("DATE=", "HOST=", "NBYTES=")


def kind_of(_name: str, head: bytes) -> str | None:
    line = first_line(head)
    return LOG if all(key in line for key in _REQUIRED) else None


def read_sources(workspace: Workspace, sources: list[SourceFile], options: ImportOptions) -> ImportResult:
    parsed = parse_lines(workspace, LOG, sources, with_transfers)
    return ImportResult(
        resolution_ns=US_NS,
        frames=[
            (SPANS, parsed.rows.withColumn("source", F.col("host"))),
            (READINGS, bytes_per_period(parsed.rows, options.period_ns)),
        ],
        rejects=parsed.rejects,
        records=parsed.lines,
        caveats=["a transfer log contains no messages: there is neither a ledger nor a message latency"],
    )


def with_transfers(lines: DataFrame) -> DataFrame:
    t_ns, start_ns = _time_ns("DATE"), _time_ns("START")
    octets = whole_number(_field("NBYTES"), 18)
    reason = first_fault(
        (_field("HOST") == "", "no HOST="),
        (t_ns.isNull(), "no DATE=yyyyMMddHHmmss.microseconds"),
        (start_ns.isNull(), "no START=yyyyMMddHHmmss.microseconds"),
        (octets.isNull(), "no NBYTES= with a whole number"),
    )
    return lines.withColumns(
        {
            REASON: reason,
            "t_ns": t_ns,
            "host": _field("HOST"),
            "action": _field("TYPE"),
            "duration_ns": t_ns - start_ns,
            "value": octets.cast("double"),
            "outcome": _field("CODE"),
            "detail": _field("DEST"),
        }
    )


def bytes_per_period(transfers: DataFrame, period_ns: int) -> DataFrame:
    """Bytes and transfers of each server per period, as readings at the start of the period."""
    start_ns = F.call_function("div", F.col("t_ns"), F.lit(period_ns).cast("long")) * F.lit(period_ns).cast("long")
    sums = transfers.groupBy("host", start_ns.alias("t_ns")).agg(
        F.sum("value").alias("bytes"), F.count("*").cast("double").alias("transfers")
    )
    long = reduce(
        DataFrame.unionByName,
        (
            sums.select("t_ns", "host", F.lit(name).alias("metric"), F.col(name).alias("value"))
            for name in ("bytes", "transfers")
        ),
    )
    entity = F.concat(F.lit("server/"), F.col("host"))
    return (
        long.select("t_ns", F.col("host").alias("source"), entity.alias("entity"), "metric", "value")
        .repartition(1)
        .sortWithinPartitions("source", "t_ns", "metric")
    )


def _field(key: str) -> Column:
    return F.regexp_extract(TEXT, rf"(?:^|\s){key}=(\S+)", 1)


def _time_ns(key: str) -> Column:
    pattern = rf"(?:^|\s){key}=([0-9]{{14}})\.([0-9]{{1,6}})(?:\s|$)"
    # Older servers print the microseconds without leading zeros.
    fraction_ns = unpadded_us(F.regexp_extract(TEXT, pattern, 2))
    return calendar_time(F.regexp_extract(TEXT, pattern, 1), "yyyyMMddHHmmss") + fraction_ns


GFTP = Format(
    name="gftp",
    expected="a transfer log of a gridFTP server: DATE=… HOST=… START=… NBYTES=… on every line",
    kind_of=kind_of,
    read_sources=read_sources,
)
