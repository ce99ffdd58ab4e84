"""Which lines of many text files can be parsed, and what are the line numbers of the others?

One pass over the text: a format's expressions parse each line or say what is wrong with it, and the result is written
as Parquet. Line numbers are computed afterwards, from the number of lines in each block of a file; otherwise a single
task would have to read a whole file. Brings only one row per block to the driver.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from crescendo.importers.format import LINE, REASON, SOURCE, TEXT, SourceFile, Workspace

MAX_TEXT_CHARS = 1000
"""How much of a rejected line is kept."""

_BLOCK, _MARK, _SHIFT = "_block", "_mark", "_shift"
_GLOB_PATHS = "__globPaths__"  # Spark's internal option: treat paths literally, not as glob patterns
_SKIPPED = ""
_FAULTY = f"{REASON} != '{_SKIPPED}'"

Parse = Callable[[DataFrame], DataFrame]
"""Adds columns and REASON to a frame of SOURCE and TEXT. REASON is null for a good line; see `skip_when` for others."""


@dataclass(frozen=True)
class ParsedLines:
    """`rows` and `rejects` have SOURCE and LINE; `rows` also the format's columns, `rejects` REASON and TEXT."""

    rows: DataFrame
    rejects: list[DataFrame]  # one frame, or none when every line is good
    lines: dict[int, int]  # source number -> lines


def parse_lines(workspace: Workspace, name: str, sources: Sequence[SourceFile], parse: Parse) -> ParsedLines:
    """Parse all these files with one set of expressions."""
    workspace.progress(f"parsing the lines of {len(sources):,} files ({name})")
    raw = (
        workspace.spark.read.option(_GLOB_PATHS, "false")
        .text([str(source.staged) for source in sources])
        .select(
            # The staged file name begins with the source number.
            F.substring(F.col("_metadata.file_name"), 1, 6).cast("int").alias(SOURCE),
            F.col("_metadata.file_block_start").alias(_BLOCK),
            F.monotonically_increasing_id().alias(_MARK),
            F.col("value").alias(TEXT),
        )
    )
    read = parse(raw).withColumn(
        # A lone byte order mark and blanks are not data either.
        REASON, F.when(F.trim(TEXT).isin("", "\ufeff"), F.lit(_SKIPPED)).otherwise(F.col(REASON))
    )  # fmt: skip
    kept = materialize(
        workspace, name, read.withColumn(TEXT, F.when(F.col(REASON).isNotNull(), F.left(TEXT, F.lit(MAX_TEXT_CHARS))))
    )
    shifts, lines, faults = _shifts(kept)
    numbered = (
        kept.join(F.broadcast(shifts), on=[SOURCE, _BLOCK], how="inner")
        .withColumn(LINE, F.col(_MARK) + F.col(_SHIFT))
        .drop(_BLOCK, _MARK, _SHIFT)
    )
    return ParsedLines(
        rows=numbered.where(F.col(REASON).isNull()).drop(REASON, TEXT),
        rejects=[numbered.where(_FAULTY).select(SOURCE, LINE, REASON, TEXT)] if faults else [],
        lines={source.number: lines[source.number] for source in sources},
    )


def materialize(workspace: Workspace, name: str, frame: DataFrame) -> DataFrame:
    """Compute a frame once, and read it from disk afterwards."""
    path = str(workspace.folder / f"{name}.kept")
    frame.write.parquet(path)
    return workspace.spark.read.option(_GLOB_PATHS, "false").schema(frame.schema).parquet(path)


def small_frame(spark: SparkSession, ddl: str, rows: list[dict[str, Any]]) -> DataFrame:
    """A few rows as a constant: needs no Python worker and no job."""
    text = msgspec.json.encode(rows).decode()
    columns = ",".join(":".join(column.split(" ", 1)) for column in ddl.split(", "))
    return spark.range(1).select(F.inline(F.from_json(F.lit(text), f"array<struct<{columns}>>")))


def first_fault(*faults: tuple[Column, str]) -> Column:
    """The reason of the first condition that is true; null when none is. Null conditions count as false."""
    return F.coalesce(*(F.when(condition, F.lit(reason)) for condition, reason in faults))


def skip_when(condition: Column, reason: Column) -> Column:
    """Mark lines without data, such as headers: they are neither rows nor rejects."""
    return F.when(condition, F.lit(_SKIPPED)).otherwise(reason)


def _shifts(kept: DataFrame) -> tuple[DataFrame, Counter[int], int]:
    """The offset from mark to line number, per block; the lines of each source; the number of faulty lines."""
    counts = (F.count("*").alias("lines"), F.min(_MARK).alias(_MARK), F.expr(f"count_if({_FAULTY})").alias("faults"))
    blocks = kept.groupBy(SOURCE, _BLOCK).agg(*counts).collect()
    lines: Counter[int] = Counter()
    rows = []
    for block in sorted(blocks, key=lambda row: (row[SOURCE], row[_BLOCK])):
        source = block[SOURCE]
        rows.append({SOURCE: source, _BLOCK: block[_BLOCK], _SHIFT: lines[source] - block[_MARK] + 1})
        lines[source] += block["lines"]
    return (
        small_frame(kept.sparkSession, f"{SOURCE} INT, {_BLOCK} BIGINT, {_SHIFT} BIGINT", rows),
        lines,
        sum(block["faults"] for block in blocks),
    )
