"""Are the columns of a recording those that the design agreed on, for writers and for Spark alike?"""

import numpy as np
import pyarrow as pa
import pytest

from crescendo.record.schema import (
    EVENTS,
    HISTOGRAMS,
    HOPS,
    OWN_DELAY,
    RATES,
    READ_DELAY,
    READINGS,
    RECEIVED,
    SENT,
    SETTLED,
    SPANS,
    TABLES,
    Flag,
    Settlement,
    arrow_schema,
    spark_ddl,
)

# The columns of section 5 of the design, copied from there.
DESIGN = {
    SENT: "sender i16, seq i64, attempt i16, intended_ns i64, sent_ns i64, size i32",
    SETTLED: "sender i16, first_seq i64, last_seq i64, sent_ns i64, settled_ns i64, outcome i16",
    OWN_DELAY: "sender i16, first_seq i64, last_seq i64, own_ns i64",
    READ_DELAY: "receiver i16, first_arrival i64, last_arrival i64, late_ns i64",
    RECEIVED: "receiver i16, sender i16, seq i64, intended_ns i64, sent_ns i64, received_ns i64, arrival i64, "
    "size i32, flags i16",
    READINGS: "t_ns i64, source text, entity text, metric text, value f64",
    EVENTS: "t_ns i64, source text, kind text, detail text",
    SPANS: "t_ns i64, source text, action text, duration_ns i64, value f64, outcome text, detail text",
    RATES: "t_ns i64, peer text, role text, messages i64",
    HOPS: "node text, sender i16, seq i64, arrived_ns i64, departed_ns i64",
    HISTOGRAMS: "t_ns i64, peer text, kind text, bucket i32, count i64",
}
ARROW = {"i16": pa.int16(), "i32": pa.int32(), "i64": pa.int64(), "f64": pa.float64(), "text": pa.string()}
SPARK = {"i16": "SMALLINT", "i32": "INT", "i64": "BIGINT", "f64": "DOUBLE", "text": "STRING"}


def agreed(table: str) -> list[tuple[str, str]]:
    return [(name, kind) for name, kind in (column.split() for column in DESIGN[table].split(", "))]


@pytest.mark.parametrize("table", DESIGN)
def test_writers_use_the_agreed_columns(table: str) -> None:
    schema = arrow_schema(table)
    assert [(field.name, field.type) for field in schema] == [(name, ARROW[kind]) for name, kind in agreed(table)]
    assert not any(field.nullable for field in schema)


@pytest.mark.parametrize("table", DESIGN)
def test_spark_reads_the_agreed_columns(table: str) -> None:
    assert spark_ddl(table) == ", ".join(f"{name} {SPARK[kind]}" for name, kind in agreed(table))


def test_there_are_no_other_tables_and_no_unsigned_columns() -> None:
    assert set(TABLES) == set(DESIGN)
    assert not any(pa.types.is_unsigned_integer(field.type) for table in TABLES for field in arrow_schema(table))


def test_flags_and_outcomes_fit_their_column_and_do_not_overlap() -> None:
    assert sum(Flag) <= np.iinfo(np.int16).max
    assert len({flag.value.bit_length() for flag in Flag}) == len(Flag)
    assert all(flag.value.bit_count() == 1 for flag in Flag)
    assert [outcome.name for outcome in Settlement] == ["ACCEPTED", "REJECTED", "RELEASED", "MODIFIED", "SHED"]
