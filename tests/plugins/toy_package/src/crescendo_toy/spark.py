"""What needs Spark: an import format, and the function that computes a table."""

from pyspark.sql import DataFrame
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
    peer_record,
)
from crescendo.importers.lines import first_fault, parse_lines, skip_when
from crescendo.pipeline.context import AnalysisContext
from crescendo.record.schema import RATES
from crescendo_toy.results import HEADER

PEER = "toy"


def _kind_of(_name: str, head: bytes) -> str | None:
    return "rates" if first_line(head) == HEADER else None


def _parsed(lines: DataFrame) -> DataFrame:
    cells = F.split(TEXT, ",")
    fault = first_fault((~F.col(TEXT).rlike("^[0-9]{1,9},[0-9]{1,15}$"), "not a second and a number of messages"))
    return lines.withColumns(
        {
            REASON: skip_when(F.col(TEXT) == HEADER, fault),
            "t_ns": F.when(fault.isNull(), F.get(cells, F.lit(0)).cast("long") * 10**9),
            "messages": F.when(fault.isNull(), F.get(cells, F.lit(1)).cast("long")),
        }
    )


def _read_sources(workspace: Workspace, sources: list[SourceFile], _options: ImportOptions) -> ImportResult:
    parsed = parse_lines(workspace, "rates", sources, _parsed)
    rates = parsed.rows.select("t_ns", F.lit(PEER).alias("peer"), F.lit("receiver").alias("role"), "messages")
    return ImportResult(
        resolution_ns=10**9,
        frames=[(RATES, rates.coalesce(1))],
        rejects=parsed.rejects,
        records=parsed.lines,
        peers=[peer_record(PEER, "receiver")],
        caveats=["the file has messages per second, no messages"],
    )


TOY_RATES = Format(
    name="toy-rates", expected=f"lines of text that begin with {HEADER}", kind_of=_kind_of, read_sources=_read_sources
)


def build_sizes(context: AnalysisContext) -> DataFrame:
    """One row per size; the columns are those of `crescendo_toy.values.SizeRow`."""
    return context.frames.sent.groupBy("size").agg(F.count("*").alias("messages"))
