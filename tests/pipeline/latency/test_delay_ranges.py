"""Ranges of delays, cut and without overlap, against a delay for each message written down one by one."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crescendo.pipeline.latency.delay_ranges import DelayRanges, own_delays, own_time_ns, read_delays
from crescendo.record.schema import OWN_DELAY, READ_DELAY, arrow_schema

ROWS = st.lists(
    st.tuples(st.integers(0, 2), st.integers(0, 300), st.integers(0, 60), st.integers(0, 10**9)), max_size=20
)


def written(path: Path, table: str, rows: list[tuple[int, int, int, int]]) -> list[str]:
    columns = [np.array(column) for column in zip(*rows, strict=True)] if rows else [np.array([])] * 4
    schema = arrow_schema(table)
    arrays = [
        pa.array(column.astype(kind.to_pandas_dtype())) for column, kind in zip(columns, schema.types, strict=True)
    ]
    pq.write_table(pa.table(arrays, schema), path)
    return [str(path)]


def by_message(ranges: DelayRanges) -> dict[tuple[int, int], int]:
    """(connection, number) -> delay. Fails if a message is in two pieces, or a piece crosses the border of a block."""
    found: dict[tuple[int, int], int] = {}
    bits = ranges.block_bits
    for row in ranges.pieces(bits).to_pylist():
        for number in range(row["first_seq"], row["last_seq"] + 1):
            assert number >> bits == row["block"]
            assert (row["connection"], number) not in found
            found[row["connection"], number] = row["delay_ns"]
    return found


@pytest.mark.parametrize("choose", [min, max])
@settings(max_examples=60, deadline=None)
@given(rows=ROWS)
def test_every_message_has_the_delay_of_its_ranges(
    choose: object, rows: list[tuple[int, int, int, int]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    table, read = (OWN_DELAY, own_delays) if choose is min else (READ_DELAY, read_delays)
    ranges = [(connection, first, first + length, delay) for connection, first, length, delay in rows]
    expected: dict[tuple[int, int], int] = {}
    for connection, first, last, delay in ranges:
        for number in range(first, last + 1) if connection != 2 else ():
            known = expected.get((connection, number), delay)
            expected[connection, number] = min(known, delay) if choose is min else max(known, delay)
    files = written(tmp_path_factory.mktemp("ranges") / "part.parquet", table, ranges)
    assert by_message(read(files, [0, 1])) == expected


def test_ranges_that_no_peer_would_write_are_ignored(tmp_path: Path) -> None:
    hostile = [(0, 5, 4, 1), (0, -3, 2, 1), (0, 0, 2**62, 1), (0, 7, 8, -5)]
    assert by_message(own_delays(written(tmp_path / "part.parquet", OWN_DELAY, hostile), [0])) == {(0, 7): 0, (0, 8): 0}


def test_one_long_range_needs_few_pieces(tmp_path: Path) -> None:
    files = written(tmp_path / "part.parquet", OWN_DELAY, [(0, 0, 2**40, 7), (1, 5, 5, 9)])
    ranges = own_delays(files, [0, 1])
    assert ranges.pieces(ranges.block_bits).num_rows <= 10


def test_own_time_is_summed_over_the_batches_of_the_measure_phase(tmp_path: Path) -> None:
    files = written(
        tmp_path / "part.parquet", OWN_DELAY, [(0, 0, 9, 5), (0, 10, 19, 7), (0, 20, 29, 11), (1, 10, 19, 3)]
    )
    assert own_time_ns(files, {0: (10, 25), 1: (0, 99)}) == {0: 18, 1: 3}
    assert own_time_ns([], {0: (0, 9)}) == {0: 0}
