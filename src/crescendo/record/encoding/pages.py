"""How is one column of one row group encoded?

Runs are encoded here: equal values as a dictionary and one entry per run, counts as deltas in which only the jumps take
space. Both cost time per run, however many rows a run covers. Columns that vary from row to row are left to pyarrow,
whose pages are used unchanged. Nothing is rounded and nothing is left out.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from crescendo.model.arrays import Int64s
from crescendo.record.encoding.column_buffer import ColumnData, CountColumn, RunLengthColumn, lengths_of
from crescendo.record.encoding.thrift import Coded, i32, struct, varint, zigzag

_ENCODINGS = {"PLAIN": 0, "RLE": 3, "DELTA_BINARY_PACKED": 5, "RLE_DICTIONARY": 8}
PLAIN, RLE, DELTA_BINARY_PACKED, RLE_DICTIONARY = _ENCODINGS.values()
UNCOMPRESSED, ZSTD = 0, 6
_DATA_PAGE, _DICTIONARY_PAGE = 0, 2

_LONG_RUN = 8  # mean rows: from here on a dictionary costs less than half of what deltas do
_LONG_COUNT = 32  # mean rows: from here on jumps cost no more time than deltas do, and take half the bytes
_WORTH_PACKING_BYTES = 4096  # below this, setting up a compressor costs more than it saves
_LEVEL = 1  # of zstd

_DELTA_BLOCK, _DELTA_GROUP = 128, 32  # the sizes that all common writers use
_GROUPS = _DELTA_BLOCK // _DELTA_GROUP
_BLOCK_HEAD = zigzag(1) + bytes(_GROUPS)  # the minimum delta of a block, then the bit widths of its groups
_JUMP_BITS = 64  # wide enough for any jump, backward or forward: sums wrap
_GROUP_BYTES = _DELTA_GROUP * _JUMP_BITS // 8


@dataclass(frozen=True, slots=True)
class Chunk:
    """The pages of one column in one row group, ready for the file."""

    octets: bytes
    dictionary_bytes: int  # the size of the dictionary page; 0 without one
    unpacked_bytes: int  # the uncompressed size
    encodings: tuple[int, ...]
    codec: int


def find_runs(data: ColumnData) -> ColumnData:
    """The column as runs of equal or counting values where these are long enough to pay off, otherwise row by row."""
    if isinstance(data, RunLengthColumn) and _pays(len(data.ends), data.ends[-1], _LONG_RUN):
        return data
    if (
        isinstance(data, CountColumn)
        and data.firsts.dtype == np.int64
        and _pays(len(data.ends), data.ends[-1], _LONG_COUNT)
    ):
        return data
    values = data if isinstance(data, np.ndarray) else data.expand()
    if values.dtype.kind != "i":
        return values
    # Finding runs costs a fraction of encoding, and producers of rows may not know that their rows share a time.
    starts = np.flatnonzero(values[1:] != values[:-1]) + 1
    if _pays(len(starts) + 1, len(values), _LONG_RUN):
        return RunLengthColumn(values[np.append(0, starts)], np.append(starts, len(values)))
    if values.dtype == np.int64:
        starts = np.flatnonzero(values[1:] - values[:-1] != 1) + 1
        if _pays(len(starts) + 1, len(values), _LONG_COUNT):
            return CountColumn(values[np.append(0, starts)], np.append(starts, len(values)))
    return values


def _pays(runs: int, rows: int, long: int) -> bool:
    return (runs - 1) * long < rows


# -- runs, encoded here ----------------------------------------------------------------------------------------------


def runs_chunk(runs: RunLengthColumn) -> Chunk:
    """A dictionary of the values; then, for each run, its length and its position in the dictionary."""
    plain = "<i8" if runs.values.dtype == np.int64 else "<i4"  # Parquet has no 16-bit physical type
    return _runs_chunk(plain, runs.values.astype(plain).tobytes(), runs.ends.tobytes())


@lru_cache(maxsize=16)
def _runs_chunk(plain: str, all_values: bytes, all_ends: bytes) -> Chunk:
    """Cached: connection and size repeat from block to block, and two time columns of a block may be equal."""
    values, ends = np.frombuffer(all_values, plain), np.frombuffer(all_ends, np.int64)
    if (values[1:] > values[:-1]).all():  # as in time columns
        distinct, positions = values, np.arange(len(values))
    else:
        distinct, positions = np.unique(values, return_inverse=True)
    position_bits = max(1, (len(distinct) - 1).bit_length())
    body = bytes((position_bits,)) + _run_lengths(lengths_of(ends), positions, (position_bits + 7) // 8)
    return _chunk(int(ends[-1]), RLE_DICTIONARY, body, distinct.tobytes(), len(distinct))


def _run_lengths(lengths: Int64s, positions: npt.NDArray[np.intp], position_bytes: int) -> bytes:
    """For each run its doubled length as a varint, then its position: a sparse byte matrix, read row by row."""
    doubled = lengths << 1
    varint_bytes = (int(doubled.max()).bit_length() + 6) // 7
    rests = doubled[:, None] >> 7 * np.arange(varint_bytes)
    table = np.empty((len(lengths), varint_bytes + position_bytes), np.uint8)
    table[:, :varint_bytes] = rests & 0x7F | (rests > 0x7F) * 0x80
    table[:, varint_bytes:] = positions.astype("<u4").view(np.uint8).reshape(-1, 4)[:, :position_bytes]
    written = np.ones(table.shape, bool)
    written[:, :varint_bytes] = rests > 0
    return table[written].tobytes()


def counts_chunk(counts: CountColumn) -> Chunk:
    """Deltas that are all the minimum, 1, and take no bits; only where a new run begins does a delta differ."""
    firsts, rows = counts.firsts, int(counts.ends[-1])
    if len(firsts) == 1:  # a single block may have any size, because its groups take no bytes
        group, body = _DELTA_GROUP * -(-rows // _DELTA_BLOCK), _BLOCK_HEAD if rows > 1 else b""
    else:
        lasts = firsts + lengths_of(counts.ends) - 1
        group, body = _DELTA_GROUP, _jumps(rows - 1, counts.ends[:-1] - 1, firsts[1:] - lasts[:-1] - 1)
    head = varint(group * _GROUPS) + varint(_GROUPS) + varint(rows) + zigzag(int(firsts[0]))
    return _chunk(rows, DELTA_BINARY_PACKED, head + body)


def _jumps(deltas: int, positions: Int64s, jumps: Int64s) -> bytes:
    """Blocks of deltas that are 1, except those at `positions`, which are 1 plus a jump."""
    blocks = -(-deltas // _DELTA_BLOCK)
    groups, group_of = np.unique(positions // _DELTA_GROUP, return_inverse=True)  # groups that contain a jump
    block_of = groups // _GROUPS
    heads = np.arange(blocks) * len(_BLOCK_HEAD) + np.searchsorted(block_of, np.arange(blocks)) * _GROUP_BYTES
    body = np.zeros(blocks * len(_BLOCK_HEAD) + len(groups) * _GROUP_BYTES, np.uint8)
    body[heads] = _BLOCK_HEAD[0]
    body[heads[block_of] + 1 + groups % _GROUPS] = _JUMP_BITS
    # A group follows the heads of its own and all earlier blocks, and all earlier groups that contain a jump.
    begins = (block_of + 1) * len(_BLOCK_HEAD) + np.arange(len(groups)) * _GROUP_BYTES
    octets = begins[group_of] + positions % _DELTA_GROUP * (_JUMP_BITS // 8)
    body[octets[:, None] + np.arange(_JUMP_BITS // 8)] = jumps.astype("<i8").view(np.uint8).reshape(len(jumps), -1)
    return body.tobytes()


def _chunk(rows: int, encoding: int, body: bytes, dictionary: bytes = b"", entries: int = 0) -> Chunk:
    codec, packed, packed_dictionary = UNCOMPRESSED, body, dictionary
    if len(body) + len(dictionary) >= _WORTH_PACKING_BYTES:
        zstd = pa.Codec("zstd", compression_level=_LEVEL)
        codec, packed = ZSTD, zstd.compress(body, asbytes=True)
        packed_dictionary = zstd.compress(dictionary, asbytes=True) if dictionary else b""
    levels = {3: i32(RLE), 4: i32(RLE)}  # empty: every value is present exactly once
    page = _page(_DATA_PAGE, len(body), packed, 5, struct({1: i32(rows), 2: i32(encoding), **levels}))
    unpacked_bytes = len(page) - len(packed) + len(body)
    if not dictionary:
        return Chunk(page, 0, unpacked_bytes, (RLE, encoding), codec)
    first = _page(
        _DICTIONARY_PAGE, len(dictionary), packed_dictionary, 7, struct({1: i32(entries), 2: i32(PLAIN)})
    )  # fmt: skip
    unpacked_bytes += len(first) - len(packed_dictionary) + len(dictionary)
    return Chunk(first + page, len(first), unpacked_bytes, (PLAIN, RLE, encoding), codec)


def _page(kind: int, unpacked_bytes: int, packed: bytes, field: int, head: Coded) -> bytes:
    return struct({1: i32(kind), 2: i32(unpacked_bytes), 3: i32(len(packed)), field: head})[1] + packed


# -- rows, encoded by pyarrow ----------------------------------------------------------------------------------------


def rows_chunks(schema: pa.Schema, columns: Sequence[npt.NDArray[Any]]) -> list[Chunk]:
    """One chunk per column: deltas for 64-bit integers, a dictionary for texts, plain values otherwise; all zstd."""
    sink = pa.BufferOutputStream()
    writer = pq.ParquetWriter(
        sink,
        schema,
        compression="zstd",
        compression_level=_LEVEL,
        use_dictionary=[field.name for field in schema if field.type == pa.string()],
        column_encoding={
            field.name: "DELTA_BINARY_PACKED" if field.type == pa.int64() else "PLAIN"
            for field in schema
            if field.type != pa.string()
        },
        write_statistics=False,  # no reader prunes by them, and they take a seventh of the encoding time
        store_schema=False,
        max_rows_per_page=len(columns[0]),  # each page sets up its own compressor
    )
    arrays = [_arrow_array(field.type, column) for field, column in zip(schema, columns, strict=True)]
    writer.write_batch(pa.RecordBatch.from_arrays(arrays, schema=schema))
    writer.close()
    buffer = sink.getvalue()
    group = pq.read_metadata(pa.BufferReader(buffer)).row_group(0)
    return [_chunk_of(buffer, group.column(index)) for index in range(len(columns))]


def _arrow_array(kind: pa.DataType, column: npt.NDArray[Any]) -> pa.Array:
    """From buffers: the first conversion of a NumPy array itself would import half of NumPy, in the middle of a run."""
    if kind == pa.string():
        return pa.array(column.tolist(), kind)
    return pa.Array.from_buffers(kind, len(column), [None, pa.py_buffer(column)])


def _chunk_of(buffer: pa.Buffer, column: pq.ColumnChunkMetaData) -> Chunk:
    first = column.dictionary_page_offset if column.has_dictionary_page else column.data_page_offset
    return Chunk(
        octets=buffer[first : first + column.total_compressed_size].to_pybytes(),
        dictionary_bytes=column.data_page_offset - first,
        unpacked_bytes=column.total_uncompressed_size,
        encodings=tuple(_ENCODINGS[name] for name in column.encodings),
        codec=ZSTD,
    )
