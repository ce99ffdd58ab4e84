"""How are the tables of other packages computed?

After ours, one at a time, in the columns that the package declared, and before the run is judged: checks may read
them. A table that fails is named on stderr and left out, whatever went wrong, and the analysis continues. Otherwise
they are tables like any others, in the receipt and in the lake.
"""

import sys
from collections.abc import Callable
from functools import partial
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from crescendo.pipeline.context import AnalysisContext
from crescendo.pipeline.storage.table_store import TableStore
from crescendo.record.published_tables import plugin_tables
from crescendo.record.table_types import Table


def write_plugin_tables(store: TableStore, context: AnalysisContext, progress: Callable[[str], None]) -> None:
    for table in plugin_tables():
        progress(f"computing the table {table.name} of a plugin")
        try:
            store.write_frame(table.name, partial(_frame, table, context))
        except Exception as err:  # the package's own code may raise anything
            store.remove_draft(table.name)
            reason = next(iter(str(err).splitlines()), "")
            print(
                f"crescendo: the table {table.name} of a plugin is left out: {type(err).__name__}: {reason}",
                file=sys.stderr,
            )


def _frame(table: Table[Any], context: AnalysisContext) -> DataFrame | None:
    """The declared columns, in their order and with their types; others only in a table with `more_columns`."""
    build = table.builder()
    frame: DataFrame | None = None if build is None else build(context)
    if frame is None:
        return None
    columns = [F.col(f"`{column.name}`").cast(column.spark_type).alias(column.name) for column in table.columns]
    others = [F.col(f"`{name}`") for name in frame.columns if name not in table.column_names]
    return frame.select(*columns, *(others if table.more_columns else []))
