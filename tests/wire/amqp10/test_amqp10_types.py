"""Does the scalar codec follow the specification for every value, and reject all malformed ones?"""

import tracemalloc
import uuid
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from amqp10_values import PRIMITIVES, arrays, proton_bytes, proton_value, proton_values, same, values
from crescendo.model.errors import PeerError
from crescendo.wire.amqp10.decoding import MAX_DEPTH, decode, skip
from crescendo.wire.amqp10.types import (
    Array,
    Byte,
    Char,
    Decimal32,
    Decimal64,
    Decimal128,
    Described,
    Float,
    Int,
    Long,
    Short,
    Symbol,
    Timestamp,
    UByte,
    UInt,
    ULong,
    UShort,
    encode,
)

# Written by hand from part 1.6 of the specification; the book is its own example of a described list (figure 1.3).
BOOK = Described(
    Symbol("example:book:list"),
    ["AMQP for & by Dummies", Array(["Rob J. Godfrey", "Rafael H. Schloming"]), None],
)
VECTORS: list[tuple[str, Any]] = [
    ("40", None),
    ("41", True),
    ("42", False),
    ("50 ff", UByte(255)),
    ("60 01 02", UShort(0x102)),
    ("43", UInt(0)),
    ("52 ff", UInt(255)),
    ("70 00 00 01 00", UInt(256)),
    ("44", ULong(0)),
    ("53 01", ULong(1)),
    ("80 ff ff ff ff ff ff ff ff", ULong(2**64 - 1)),
    ("51 80", Byte(-128)),
    ("61 ff fe", Short(-2)),
    ("54 ff", Int(-1)),
    ("71 ff ff ff 7f", Int(-129)),
    ("55 80", Long(-128)),
    ("81 00 00 00 00 00 00 00 80", Long(128)),
    ("72 3f 80 00 00", Float(1.0)),
    ("82 c0 00 00 00 00 00 00 00", -2.0),
    ("73 00 01 f3 bb", Char("🎻")),
    ("74 01 02 03 04", Decimal32(b"\1\2\3\4")),
    ("84 01 02 03 04 05 06 07 08", Decimal64(b"\1\2\3\4\5\6\7\x08")),
    ("94" + " 0a" * 16, Decimal128(b"\x0a" * 16)),
    ("83 00 00 01 39 1b 1d 8f 00", Timestamp(0x1391B1D8F00)),
    ("98 00112233 44556677 8899aabb ccddeeff", uuid.UUID("00112233-4455-6677-8899-aabbccddeeff")),
    ("a0 03 01 02 03", b"\1\2\3"),
    ("a1 02 c3 a9", "é"),
    ("a3 04 616d7170", Symbol("amqp")),
    ("45", []),
    ("c0 04 02 43 52 07", [UInt(0), UInt(7)]),
    ("c1 06 02 a3 01 61 54 05", {Symbol("a"): Int(5)}),
    ("e0 06 02 61 0001 0002", Array([Short(1), Short(2)])),
    (
        "00 a3 11" + b"example:book:list".hex() + "c0 40 03"
        "a1 15" + b"AMQP for & by Dummies".hex() + "e0 25 02 a1 0e" + b"Rob J. Godfrey".hex()
        + "13" + b"Rafael H. Schloming".hex() + "40",
        BOOK,
    ),
]  # fmt: skip
# Encodings that are legal but that we never choose.
FOREIGN_VECTORS: list[tuple[str, Any]] = [
    ("56 00", False),
    ("56 01", True),
    ("70 00 00 00 00", UInt(0)),
    ("80 00 00 00 00 00 00 00 01", ULong(1)),
    ("b0 00 00 00 01 ff", b"\xff"),
    ("b1 00 00 00 01 78", "x"),
    ("d0 00 00 00 05 00 00 00 01 40", [None]),
    ("d0 00 00 00 04 00 00 00 00", []),
    ("d1 00 00 00 04 00 00 00 00", {}),
    ("f0 00 00 00 07 00 00 00 02 52 01 02", Array([UInt(1), UInt(2)])),
    ("e0 02 03 41", Array([True, True, True])),
    ("e0 07 02 00 53 75 52 07 08", Array([Described(ULong(0x75), UInt(7)), Described(ULong(0x75), UInt(8))])),
]


def octets(text: str) -> bytes:
    return bytes.fromhex(text.replace(" ", ""))


def read(data: bytes) -> Any:
    value, end = decode(memoryview(data))
    assert end == len(data)
    return value


@pytest.mark.parametrize(("text", "value"), VECTORS, ids=[text[:24] for text, _ in VECTORS])
def test_hand_written_vectors_are_read_and_written(text: str, value: Any) -> None:
    assert same(read(octets(text)), value)
    if not isinstance(value, Array | Described):  # arrays share the widest constructor, so they may differ in width
        assert encode(value) == octets(text)


@pytest.mark.parametrize(("text", "value"), FOREIGN_VECTORS, ids=[text[:24] for text, _ in FOREIGN_VECTORS])
def test_encodings_that_only_peers_choose_are_read(text: str, value: Any) -> None:
    assert same(read(octets(text)), value)


@given(values)
def test_an_encoded_value_is_decoded_with_its_type(value: Any) -> None:
    assert same(read(encode(value)), value)


@given(arrays)
def test_arrays_of_any_type_round_trip(value: Any) -> None:
    assert same(read(encode(value)), value)


@given(proton_values)
def test_proton_reads_what_we_write(value: Any) -> None:
    assert same(proton_value(encode(value)), value)


@given(st.recursive(st.one_of(*PRIMITIVES.values()), lambda inner: st.lists(inner, max_size=5), max_leaves=10))
def test_we_read_what_proton_writes(value: Any) -> None:
    assert same(read(proton_bytes(value)), value)


@given(values, st.binary(max_size=4))
def test_skip_ends_where_decode_ends(value: Any, behind: bytes) -> None:
    data = memoryview(encode(value) + behind)
    assert skip(data, 0) == decode(data)[1] == len(data) - len(behind)


@given(values)
def test_every_truncation_is_the_peers_fault(value: Any) -> None:
    data = encode(value)
    for end in {*range(min(len(data), 40)), *range(max(len(data) - 40, 0), len(data))}:
        for read_it in (decode, skip):
            with pytest.raises(PeerError):
                read_it(memoryview(data[:end]), 0)


@given(st.binary(max_size=64))
@settings(max_examples=500)
def test_any_bytes_are_a_value_or_the_peers_fault(data: bytes) -> None:
    try:
        value, end = decode(memoryview(data))
    except PeerError:
        return
    assert 0 < end <= len(data)
    assert skip(memoryview(data), 0) == end
    assert same(read(encode(value)), value) or "nan" in repr(value).lower()  # NaN may lose its payload bits


@pytest.mark.parametrize("opening", ["c003 01", "c103 02 40", "e003 01 c0", "00 53 01", "00 40"])
def test_nesting_has_a_limit(opening: str) -> None:
    start = octets(opening)
    with pytest.raises(PeerError):
        decode(memoryview(start * 100_000))


def test_descriptors_of_descriptors_have_a_limit() -> None:
    for read_it in (decode, skip):
        with pytest.raises(PeerError):
            read_it(memoryview(bytes(200_000)), 0)


def test_values_nested_up_to_the_limit_are_read() -> None:
    value: Any = None
    for _ in range(MAX_DEPTH):
        value = [value]
    assert same(read(encode(value)), value)
    with pytest.raises(PeerError, match="nested"):
        read(encode([value]))


@pytest.mark.parametrize(
    "text",
    [
        "a0 05 00",  # a binary longer than the remaining bytes
        "b0 ff ff ff ff 00",
        "b1 7f ff ff ff 00",
        "c0 02 05 40",  # five items announced, one present
        "d0 00 00 00 08 ff ff ff ff 40 40 40 40",
        "f0 00 00 00 06 7f ff ff ff 52 00",
        "f0 00 00 00 05 7f ff ff ff 41",  # 2^31 - 1 trues in nine bytes
        "f0 00 00 00 05 7f ff ff ff 45",
        "e0 01 02",  # no constructor
        "c0 00",  # no count
        "c1 03 01 40 40",  # a key without a value
    ],
)
def test_sizes_and_counts_beyond_the_bytes_are_refused(text: str) -> None:
    with pytest.raises(PeerError):
        decode(memoryview(octets(text)))


@pytest.mark.parametrize("text", ["a1 01 ff", "a3 01 c3", "73 00 11 00 00", "73 ffffffff", "46", "00 53 10 9f", "ff"])
def test_invalid_text_characters_and_codes_are_refused(text: str) -> None:
    with pytest.raises(PeerError):
        decode(memoryview(octets(text)))


def test_an_invalid_map_key_is_refused() -> None:
    with pytest.raises(PeerError, match="key"):
        decode(memoryview(octets("c1 03 02 45 40")))


def test_zero_width_items_cannot_exhaust_memory() -> None:
    # An array of nulls takes nine bytes whatever its count, and a list of such arrays fits into one frame.
    array = octets("f0 00 00 00 05") + (65_536).to_bytes(4, "big") + b"\x40"
    count = 6_500
    frame = b"\xd0" + (4 + count * len(array)).to_bytes(4, "big") + count.to_bytes(4, "big") + array * count
    assert len(frame) < 66_000
    tracemalloc.start()
    try:
        with pytest.raises(PeerError):
            decode(memoryview(frame))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 16 * 2**20


def test_a_value_without_an_amqp_type_is_our_own_mistake() -> None:
    with pytest.raises(TypeError, match="complex"):
        encode(1j)
    with pytest.raises(TypeError, match="one type"):
        encode(Array([UInt(1), ULong(1)]))
