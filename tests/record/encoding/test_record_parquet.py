"""Do pyarrow, DuckDB and Spark read the same values and schemas from our files that were written?"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from crescendo.model.arrays import Int64s
from crescendo.record.encoding.column_buffer import CountColumn, RunLengthColumn
from crescendo.record.encoding.parquet import PartWriter
from crescendo.record.reader import journalled_parts
from crescendo.record.schema import EVENTS, READINGS, RECEIVED, SENT, SETTLED, TABLES, arrow_schema
from crescendo.record.writer import Recorder

LIMITS = {"i16": 2**15, "i32": 2**31, "i64": 2**63}
DTYPES = {"i16": np.int16, "i32": np.int32, "i64": np.int64, "f64": np.float64, "text": object}
WORDS = ["", "a", "sender-é", "💥" * 9, '{"k": [1, 2]}']

Batch = tuple[
    int, tuple[Any, ...], list[list[Any]]
]  # rows, the appended values, and the rows of each column that they stand for


# -- batches of every form, with their expected rows as plain lists --------------------------------------------------


def a_column(dice: np.random.Generator, kind: str, rows: int, going: int) -> tuple[Any, list[Any]]:
    """A value as Recorder.append takes it, and the list of rows it stands for."""
    if kind in {"f64", "text"}:
        few = WORDS if kind == "text" else [0.0, -0.0, 1.5, -1e308, 5e-324, float("inf")]
        picked = [few[dice.integers(len(few))] for _ in range(rows)]
        if dice.random() < 0.5:
            return picked[0], picked[:1] * rows
        return np.array(picked, DTYPES[kind]), picked
    limit = LIMITS[kind]
    extremes = [-limit, limit - 1, -limit + 1, limit - 2, 0, 1, -1]
    form = dice.choice(["steady", "one", "range", "jump", "stretches", "counting", "wild"])
    if form in {"range", "jump", "counting"} and kind != "i64":
        form = "stretches"
    match form:
        case "steady":
            return 7, [7] * rows
        case "one":
            value = extremes[dice.integers(len(extremes))]
            return value, [value] * rows
        case "range":
            return range(going, going + rows), list(range(going, going + rows))
        case "jump":
            first = [-limit, limit - rows, -rows // 2, 12_345][dice.integers(4)]
            return range(first, first + rows), list(range(first, first + rows))
        case "stretches":
            values: list[int] = []
            while len(values) < rows:
                values += [extremes[dice.integers(len(extremes))]] * int(dice.integers(1, 40))
            return np.array(values[:rows], DTYPES[kind]), values[:rows]
        case "counting":
            return np.arange(going, going + rows), list(range(going, going + rows))
        case _:
            wild = [int(value) for value in dice.integers(-limit, limit - 1, rows, np.int64, endpoint=True)]
            return np.array(wild, DTYPES[kind]), wild


def some_batches(table: str, sizes: list[int], seed: int) -> Iterator[Batch]:
    dice = np.random.default_rng(seed)
    going = 1000
    for rows in sizes:
        columns = [a_column(dice, column.kind, rows, going) for column in TABLES[table]]
        going += rows
        yield rows, tuple(value for value, _ in columns), [meant for _, meant in columns]


def record(run_dir: Path, table: str, batches: Iterator[Batch], **limits: int) -> list[list[Any]]:
    """Append the batches; the columns that should now be on disk."""
    expected: list[list[Any]] = [[] for _ in TABLES[table]]
    recorder = Recorder(run_dir, "peer", **limits)
    for rows, values, meant in batches:
        recorder.append(table, rows, *values)
        for column, more in zip(expected, meant, strict=True):
            column.extend(more)
    recorder.close()
    return expected


def read_by_arrow(files: list[Path]) -> list[list[Any]]:
    return [column.to_pylist() for column in pa.concat_tables([pq.read_table(file) for file in files]).columns]


def read_by_duckdb(files: list[Path]) -> list[list[Any]]:
    rows = [row for file in files for row in duckdb.read_parquet(str(file)).fetchall()]
    return [list(column) for column in zip(*rows, strict=True)]


def parts_of(run_dir: Path) -> list[Path]:
    return [run_dir / part.path for part in journalled_parts(run_dir)]


# -- any batches -----------------------------------------------------------------------------------------------------


@given(
    table=st.sampled_from([SENT, SETTLED, RECEIVED, READINGS, EVENTS]),
    sizes=st.lists(st.one_of(st.integers(1, 9), st.integers(1, 400)), min_size=1, max_size=8),
    seed=st.integers(0, 2**32),
    block_rows=st.one_of(st.integers(1, 20), st.integers(100, 900)),
    part_rows=st.integers(50, 2000),
)
@settings(max_examples=30)
def test_other_readers_read_the_values_of_any_batches(
    tmp_path_factory: pytest.TempPathFactory, table: str, sizes: list[int], seed: int, block_rows: int, part_rows: int
) -> None:
    run_dir = tmp_path_factory.mktemp("run")
    expected = record(run_dir, table, some_batches(table, sizes, seed), block_rows=block_rows, part_rows=part_rows)
    files = parts_of(run_dir)
    assert read_by_arrow(files) == expected
    assert read_by_duckdb(files) == expected
    assert sum(pq.read_metadata(file).num_rows for file in files) == sum(sizes)


@given(
    lengths=st.lists(st.integers(1, 300), min_size=1, max_size=12),
    firsts=st.lists(st.integers(-(2**63), 2**63 - 1), min_size=12, max_size=12),
)
@settings(max_examples=60)
def test_counts_jump_anywhere_and_any_distance(
    tmp_path_factory: pytest.TempPathFactory, lengths: list[int], firsts: list[int]
) -> None:
    firsts = [min(first, 2**63 - length) for first, length in zip(firsts, lengths, strict=False)]
    numbers = [n for first, length in zip(firsts, lengths, strict=True) for n in range(first, first + length)]
    # A long run first, so that jumps are rare and the column stays a count column.
    lead = 40 * len(lengths)
    ends = np.cumsum([lead, *lengths])
    held = CountColumn(np.array([5, *firsts]), ends)
    steady = RunLengthColumn(np.array([1], np.int16), ends[-1:])
    file = tmp_path_factory.mktemp("part") / "part.parquet"
    writer = PartWriter(file, SENT)
    writer.write(int(ends[-1]), [steady, held, steady, held, held, RunLengthColumn(np.array([9], np.int32), ends[-1:])])
    writer.close()
    expected = [*range(5, 5 + lead), *numbers]
    for read in (read_by_arrow, read_by_duckdb):
        columns = read([file])
        assert columns[1] == columns[3] == columns[4] == expected
    group = pq.read_metadata(file).row_group(0)
    assert "DELTA_BINARY_PACKED" in group.column(1).encodings
    assert group.column(0).total_compressed_size < 100


@pytest.mark.parametrize("distinct", [1, 2, 3, 128, 129, 256, 257, 33_000])
def test_dictionaries_of_every_width(tmp_path: Path, distinct: int) -> None:
    """Around each dictionary size at which positions need another bit, or another byte."""
    values = np.random.default_rng(distinct).permutation(distinct)
    ends = np.arange(1, distinct + 1) * 9
    steady = RunLengthColumn(np.array([1], np.int16), ends[-1:])
    writer = PartWriter(tmp_path / "part.parquet", SENT)
    writer.write(
        9 * distinct, [steady, RunLengthColumn(values, ends), steady, *[RunLengthColumn(values, ends)] * 2, steady]
    )
    writer.close()
    expected = np.repeat(values, 9)
    for read in (pq.read_table, lambda file: duckdb.read_parquet(str(file)).to_arrow_table()):
        assert np.array_equal(read(tmp_path / "part.parquet")["seq"].to_numpy(), expected)


# -- one file with every form, for the slower readers ----------------------------------------------------------------

WIDE_RUNS = 70_000  # more values than fit into two bytes


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Int64s]]:
    """Runs of thousands and runs of one, counts with and without jumps, varying rows; a row group of one row."""
    file = tmp_path_factory.mktemp("everything") / "part.parquet"
    dice = np.random.default_rng(7)
    low, high = -(2**63), 2**63 - 1
    lengths = dice.integers(8, 10, WIDE_RUNS)
    ends = np.cumsum(lengths)
    rows = int(ends[-1])
    times = np.cumsum(dice.integers(1, 10**6, WIDE_RUNS))
    senders = dice.integers(-(2**15), 2**15, 300).astype(np.int16)
    blocks = [
        [
            RunLengthColumn(np.array([-3], np.int16), np.array([rows])),
            RunLengthColumn(senders, np.append(np.sort(dice.choice(rows - 1, 299, replace=False) + 1), rows)),
            CountColumn(np.array([low]), np.array([rows])),
            RunLengthColumn(times, ends),
            dice.integers(low, high, rows, endpoint=True),
            np.repeat(times, lengths),
            CountColumn(np.array([0, high - 999, low, 5]), np.array([1, 1001, 90_000, rows])),
            RunLengthColumn(np.array([-(2**31), 2**31 - 1], np.int32), np.array([rows - 1, rows])),
            (np.arange(rows) % 3).astype(np.int16),
        ],
        [np.array([n], dtype) for n, dtype in enumerate(DTYPES[column.kind] for column in TABLES[RECEIVED])],
    ]
    writer = PartWriter(file, RECEIVED)
    for block in blocks:
        writer.write(len(block[4]), block)
    writer.close()
    by_hand = [
        np.full(rows, -3),
        np.repeat(blocks[0][1].values, np.diff(blocks[0][1].ends, prepend=0)),
        low + np.arange(rows),
        np.repeat(times, lengths),
        blocks[0][4],
        blocks[0][5],
        np.concatenate(
            [[0], high - 999 + np.arange(1000), low + np.arange(89_999 - 1000), 5 + np.arange(rows - 90_000)]
        ),
        np.append(np.full(rows - 1, -(2**31)), 2**31 - 1),
        blocks[0][8],
    ]
    return file, [np.append(column, n) for n, column in enumerate(by_hand)]


def assert_equal(read: pa.Table, expected: list[Int64s]) -> None:
    assert read.num_columns == len(expected)
    for column, values in zip(read.columns, expected, strict=True):
        assert np.array_equal(column.to_numpy(), values)


def test_pyarrow_reads_everything(everything: tuple[Path, list[Int64s]]) -> None:
    file, expected = everything
    assert_equal(pq.read_table(file), expected)


def test_duckdb_reads_everything(everything: tuple[Path, list[Int64s]]) -> None:
    file, expected = everything
    assert_equal(duckdb.read_parquet(str(file)).to_arrow_table(), expected)


@pytest.mark.parametrize("vectorised", ["true", "false"])
def test_spark_reads_everything(spark: SparkSession, everything: tuple[Path, list[Int64s]], vectorised: str) -> None:
    """With its own decoder and with that of the Parquet project."""
    file, expected = everything
    spark.conf.set("spark.sql.parquet.enableVectorizedReader", vectorised)
    try:
        assert_equal(spark.read.parquet(str(file)).toArrow(), expected)
    finally:
        spark.conf.unset("spark.sql.parquet.enableVectorizedReader")


# -- metadata of the files -------------------------------------------------------------------------------------------


def one_row(table: str) -> list[Any]:
    return [np.array(["x" if column.kind == "text" else 1], DTYPES[column.kind]) for column in TABLES[table]]


@pytest.mark.parametrize("table", TABLES)
def test_the_schema_is_the_one_that_pyarrow_would_have_written(tmp_path: Path, table: str) -> None:
    ours, theirs = tmp_path / "ours.parquet", tmp_path / "theirs.parquet"
    writer = PartWriter(ours, table)
    writer.write(1, one_row(table))
    writer.close()
    pq.write_table(pa.table([pa.array(column) for column in one_row(table)], schema=arrow_schema(table)), theirs)
    assert pq.ParquetFile(ours).schema.equals(pq.ParquetFile(theirs).schema)
    assert pq.read_schema(ours).equals(pq.read_schema(theirs), check_metadata=True)
    assert pq.read_table(ours).equals(pq.read_table(theirs))
    query = "SELECT * EXCLUDE file_name FROM parquet_schema(?)"
    schemas = [duckdb.execute(query, [str(file)]).fetchall() for file in (ours, theirs)]
    assert schemas[0] == schemas[1]


def test_spark_sees_the_schema_that_it_would_see_from_pyarrow(spark: SparkSession, tmp_path: Path) -> None:
    for table in (RECEIVED, READINGS):  # every type there is
        ours, theirs = tmp_path / f"{table}.parquet", tmp_path / f"{table}.theirs.parquet"
        writer = PartWriter(ours, table)
        writer.write(1, one_row(table))
        writer.close()
        pq.write_table(pa.table([pa.array(column) for column in one_row(table)], schema=arrow_schema(table)), theirs)
        assert spark.read.parquet(str(ours)).schema == spark.read.parquet(str(theirs)).schema


def test_constant_columns_take_no_more_space_for_a_hundred_times_the_rows(tmp_path: Path) -> None:
    octets = []
    for rows in (1_000, 100_000):
        run_dir = tmp_path / str(rows)
        recorder = Recorder(run_dir, "peer")
        for first in range(0, rows, rows // 10):
            recorder.append(SENT, rows // 10, 1, range(first, first + rows // 10), 1, first, first, 256)
        recorder.close()
        file = parts_of(run_dir)[0]
        octets.append(file.stat().st_size)
        assert pq.read_metadata(file).row_group(0).column(1).total_compressed_size < 60  # one run, not ten
    assert octets[1] - octets[0] < 60  # some varints take one more byte


def test_constant_columns_are_never_written_row_by_row(everything: tuple[Path, list[Int64s]]) -> None:
    group = pq.read_metadata(everything[0]).row_group(0)
    encodings = {column.path_in_schema: set(column.encodings) for column in map(group.column, range(9))}
    runs, deltas, plain = {"PLAIN", "RLE", "RLE_DICTIONARY"}, {"RLE", "DELTA_BINARY_PACKED"}, {"RLE", "PLAIN"}
    assert encodings == {
        "receiver": runs, "sender": runs, "seq": deltas, "intended_ns": runs, "sent_ns": deltas,
        "received_ns": runs,  # given row by row
        "arrival": deltas, "size": runs, "flags": plain,
    }  # fmt: skip
    octets = {column.path_in_schema: column.total_compressed_size for column in map(group.column, range(9))}
    assert max(octets["receiver"], octets["seq"], octets["size"]) < 60
    assert octets["intended_ns"] == octets["received_ns"]
    content = everything[0].read_bytes()
    for column in map(group.column, range(9)):  # pages begin with their type: field 1, an i32, in zigzag
        assert content[column.data_page_offset :][:2] == b"\x15\x00"
        if column.has_dictionary_page:
            assert content[column.dictionary_page_offset :][:2] == b"\x15\x04"


def test_a_truncated_file_is_never_valid_parquet(tmp_path: Path) -> None:
    file = tmp_path / "part.parquet"
    writer = PartWriter(file, SENT)
    writer.write(1, one_row(SENT))
    writer.abandon()
    with pytest.raises(pa.ArrowInvalid):
        pq.read_table(file)
    writer = PartWriter(file, SENT)
    writer.write(1, one_row(SENT))
    writer.close()
    whole = file.read_bytes()
    for cut in range(len(whole)):
        with pytest.raises((pa.ArrowInvalid, OSError)):
            pq.read_table(pa.BufferReader(whole[:cut]))


# -- rejected input --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "error"),
    [
        ((1, range(5, 8), 1, 1, 1, 2**31), OverflowError),
        ((1, range(5, 8), 2**15, 1, 1, 32), OverflowError),
        ((1, range(5, 8), 1, 1, 2**63, 32), OverflowError),
        ((1, range(5, 7), 1, 1, 1, 32), ValueError),
        ((1, np.arange(2), 1, 1, 1, 32), ValueError),
        ((1, range(5, 8), 1, 1.5, 1, 32), TypeError),
        ((1, range(5, 8), 1, 1, 1), ValueError),
    ],
)
@pytest.mark.parametrize("before", [0, 2])
def test_rows_that_do_not_fit_are_rejected_as_a_whole(
    tmp_path: Path, values: tuple[Any, ...], error: type[Exception], before: int
) -> None:
    recorder = Recorder(tmp_path, "peer")
    recorder.append(SENT, before, 1, range(before), 1, 1, 1, 32)
    with pytest.raises(error):
        recorder.append(SENT, 3, *values)
    recorder.append(SENT, 2, 4, range(50, 52), 4, 4, np.array([4, 5]), 4)
    recorder.close()
    rows = duckdb.read_parquet(str(parts_of(tmp_path)[0])).fetchall()
    assert rows == [(1, n, 1, 1, 1, 32) for n in range(before)] + [(4, 50, 4, 4, 4, 4), (4, 51, 4, 4, 5, 4)]
