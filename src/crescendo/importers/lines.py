"""Which lines of many text files can be read, and where do the others stand?

One pass over the text: a format's expressions take each line apart and say what is wrong with it, and the result is
kept as Parquet. Lines get their numbers afterwards, from how many lines each block of a file has: a number for every
line would otherwise need one task to read a whole file. Nothing but one row a block is brought to the driver.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from crescendo.importers.format import LINE, REASON, SOURCE, TEXT, SourceFile, Workspace

TEXT_KEPT = 1000
"""Characters of a rejected line that are kept."""

_BLOCK, _MARK, _SHIFT = "_block", "_mark", "_shift"
_GLOB_PATHS = "__globPaths__"  # Spark's own switch: the names of directories are names, not patterns
_SKIPPED = ""
_FAULTY = f"{REASON} != '{_SKIPPED}'"

Parse = Callable[[DataFrame], DataFrame]
"""Adds columns and REASON to a frame of SOURCE and TEXT: null for a good line, `skipped` for one that holds no data."""


@dataclass(frozen=True)
class Parsed:
    """Both have SOURCE and LINE; `rows` the columns of the format, `rejects` REASON and TEXT."""

    rows: DataFrame
    rejects: list[DataFrame]  # one, or none when every line is good
    lines: dict[int, int]  # source number -> lines


def parse_lines(workspace: Workspace, name: str, sources: Sequence[SourceFile], parse: Parse) -> Parsed:
    """Read all these files with one set of expressions."""
    workspace.progress(f"taking the lines of {len(sources):,} files apart ({name})")
    raw = (
        workspace.spark.read.option(_GLOB_PATHS, "false")
        .text([str(source.staged) for source in sources])
        .select(
            # The staged name begins with the number of the source.
            F.substring(F.col("_metadata.file_name"), 1, 6).cast("int").alias(SOURCE),
            F.col("_metadata.file_block_start").alias(_BLOCK),
            F.monotonically_increasing_id().alias(_MARK),
            F.col("value").alias(TEXT),
        )
    )
    read = parse(raw).withColumn(
        # A byte order mark or blanks are no data either.
        REASON, F.when(F.trim(TEXT).isin("", "\ufeff"), F.lit(_SKIPPED)).otherwise(F.col(REASON))
    )  # fmt: skip
    kept = keep(
        workspace, name, read.withColumn(TEXT, F.when(F.col(REASON).isNotNull(), F.left(TEXT, F.lit(TEXT_KEPT))))
    )
    shifts, lines, faults = _shifts(kept)
    numbered = (
        kept.join(F.broadcast(shifts), on=[SOURCE, _BLOCK], how="inner")
        .withColumn(LINE, F.col(_MARK) + F.col(_SHIFT))
        .drop(_BLOCK, _MARK, _SHIFT)
    )
    return Parsed(
        rows=numbered.where(F.col(REASON).isNull()).drop(REASON, TEXT),
        rejects=[numbered.where(_FAULTY).select(SOURCE, LINE, REASON, TEXT)] if faults else [],
        lines={source.number: lines[source.number] for source in sources},
    )


def keep(workspace: Workspace, name: str, frame: DataFrame) -> DataFrame:
    """Compute a frame once and read it from disk from then on."""
    path = str(workspace.folder / f"{name}.kept")
    frame.write.parquet(path)
    return workspace.spark.read.option(_GLOB_PATHS, "false").schema(frame.schema).parquet(path)


def small_frame(spark: SparkSession, ddl: str, rows: list[dict[str, Any]]) -> DataFrame:
    """A handful of rows as one constant: no Python worker, no job."""
    text = msgspec.json.encode(rows).decode()
    columns = ",".join(":".join(column.split(" ", 1)) for column in ddl.split(", "))
    return spark.range(1).select(F.inline(F.from_json(F.lit(text), f"array<struct<{columns}>>")))


def first_fault(*faults: tuple[Column, str]) -> Column:
    """The reason of the first condition that holds, null when none does. A condition that is null does not hold."""
    return F.coalesce(*(F.when(condition, F.lit(reason)) for condition, reason in faults))


def skipped(condition: Column, reason: Column) -> Column:
    """Lines that hold no data by design, a header for instance, are neither rows nor rejects."""
    return F.when(condition, F.lit(_SKIPPED)).otherwise(reason)


def _shifts(kept: DataFrame) -> tuple[DataFrame, Counter[int], int]:
    """What to add to the mark of a line, block by block; how many lines each source has; how many are faulty."""
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
