"""How do the rows of a small table get into Spark without a scan?

They are read here and become part of the query. Spark then opens no file and broadcasts no configuration for it, and a
table without rows takes every step that would read it out of the query. Only for few rows: they stay in the memory of
the driver as long as the query does.
"""

import tempfile
from collections.abc import Iterable
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

_SPARK = {
    pa.int16(): "short",
    pa.int32(): "integer",
    pa.int64(): "long",
    pa.float64(): "double",
    pa.string(): "string",
}
"""The types of recordings, as Spark calls them in a schema."""


def read_here(files: Iterable[str], schema: pa.Schema) -> pa.Table:
    """The rows of these files, in this process. No files give no rows."""
    parts = [pq.ParquetFile(file).read().cast(schema) for file in files]
    return pa.concat_tables([schema.empty_table(), *parts])


def given_rows(spark: SparkSession, table: pa.Table) -> DataFrame:
    """The rows as part of a query: what `createDataFrame` does, which imports pandas for it."""
    described = {
        "type": "struct",
        "fields": [
            {"name": field.name, "type": _SPARK[field.type], "nullable": True, "metadata": {}} for field in table.schema
        ],
    }
    jvm: Any = spark.sparkContext._jvm
    # A thread without an active session has Spark's defaults, with which a program would be compiled to copy the rows.
    getattr(jvm, "org.apache.spark.sql.classic.SparkSession").setActiveSession(spark._jsparkSession)
    # In the directory of the session, which is removed even after a kill.
    folder = spark.sparkContext.getConf().get("spark.local.dir")
    with tempfile.NamedTemporaryFile(prefix="rows-", dir=folder) as file:
        with pa.ipc.new_stream(file, table.schema) as stream:
            stream.write_table(table.combine_chunks())
        file.flush()
        batches = jvm.PythonSQLUtils.readArrowStreamFromFile(file.name)
        frame = jvm.PythonSQLUtils.toDataFrame(batches, msgspec.json.encode(described).decode(), spark._jsparkSession)
    return DataFrame(frame, spark)
