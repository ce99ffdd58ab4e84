"""Shared by the tests of importers: the samples, and a reader of recordings that uses none of our code."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb

from crescendo.importers.job import ImportSummary

Run = Callable[..., ImportSummary]
SAMPLES = Path(__file__).with_name("samples")


def rows_of(run_dir: Path, table: str, query: str, *values: object) -> list[tuple[Any, ...]]:
    """Query the raw parts with DuckDB, which shares no code with ours; `query` reads from `rows`."""
    with duckdb.connect() as engine:
        engine.execute(f"CREATE VIEW rows AS SELECT * FROM read_parquet('{run_dir}/{table}/*.parquet')")  # noqa: S608
        return engine.execute(query, list(values)).fetchall()


def rejected_lines(run_dir: Path) -> list[dict[str, Any]]:
    """The rejected lines, in the order of the files."""
    files = sorted((run_dir / "rejected").glob("*.jsonl"))
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]
