"""Do our values, methods and properties agree with pika, which shares no code with us?

Where pika has no encoding, or another one than brokers, the bytes are written by hand.
"""

import itertools
from decimal import Decimal
from typing import Any

import pika.data
import pika.spec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crescendo.model.errors import PeerError
from crescendo.wire.amqp091.fields import field_specs
from crescendo.wire.amqp091.method_table import CODES, METHODS, decode_method, encode_method
from crescendo.wire.amqp091.methods import Method
from crescendo.wire.amqp091.properties import Properties, decode_header, encode_header
from crescendo.wire.amqp091.types import MAX_DEPTH, Timestamp, decode_table, encode_table

modest = settings(max_examples=60)
names = st.text(max_size=20)
values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False)
    | st.text(max_size=20)
    | st.decimals(-(10**4), 10**4, places=3)
    | st.integers(0, 2**64 - 1).map(Timestamp),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(names, inner, max_size=4),
    max_leaves=12,
)
tables = st.dictionaries(names, values, max_size=5)
plain_tables = st.dictionaries(names, st.text(max_size=9) | st.booleans() | st.integers(-99, 99), max_size=4)
BY_KIND = {
    "octet": st.integers(0, 255),
    "short": st.integers(0, 2**16 - 1),
    "long": st.integers(0, 2**32 - 1),
    "longlong": st.integers(0, 2**63 - 1),
    "shortstr": names,
    "longstr": st.text(max_size=30).map(str.encode),
    "table": plain_tables,
    "bit": st.booleans(),
}
# pika names reserved fields as older versions of the specification did.
OTHER_NAMES = {
    "no_wait": "nowait",
    ("ConnectionOpen", "reserved_1"): "capabilities",
    ("ConnectionOpen", "reserved_2"): "insist",
    ("ConnectionOpenOk", "reserved_1"): "known_hosts",
    ("ChannelOpen", "reserved_1"): "out_of_band",
    ("ChannelOpenOk", "reserved_1"): "channel_id",
    ("BasicGetEmpty", "reserved_1"): "cluster_id",
    "reserved_1": "ticket",
}


# -- field tables ----------------------------------------------------------------------------------------------------

BY_HAND = [
    ("t\x01", True),
    ("t\x00", False),
    ("b\xff", -1),
    ("B\xff", 255),
    ("s\xff\xfe", -2),
    ("U\xff\xfe", -2),
    ("u\xff\xfe", 65_534),
    ("I\xff\xff\xff\xff", -1),
    ("i\xff\xff\xff\xff", 2**32 - 1),
    ("l\xff\xff\xff\xff\xff\xff\xff\xff", -1),
    ("L\x00\x00\x00\x00\x00\x00\x01\x00", 256),
    ("f\x3f\x80\x00\x00", 1.0),
    ("d\xbf\xf0\x00\x00\x00\x00\x00\x00", -1.0),
    ("D\x02\xff\xff\xff\x9c", Decimal("-1.00")),
    ("S\x00\x00\x00\x02\xc3\xa4", "ä"),
    ("S\x00\x00\x00\x01\xff", b"\xff"),
    ("x\x00\x00\x00\x02\x00\xff", b"\x00\xff"),
    ("T\x00\x00\x00\x00\x00\x00\x00\x07", Timestamp(7)),
    ("V", None),
    ("A\x00\x00\x00\x03t\x01V", [True, None]),
    ("F\x00\x00\x00\x04\x01kt\x01", {"k": True}),
]


@pytest.mark.parametrize(("octets", "value"), BY_HAND, ids=[f"{octets[0]}{n}" for n, (octets, _) in enumerate(BY_HAND)])
def test_every_type_of_a_field_table_is_read(octets: str, value: object) -> None:
    content = b"\x01k" + octets.encode("latin-1")
    table = len(content).to_bytes(4, "big") + content
    read, end = decode_table(memoryview(table), 0)
    assert (read, end) == ({"k": value}, len(table))
    assert type(read["k"]) is type(value)
    with pytest.raises(PeerError):
        decode_table(memoryview(table[:-1]), 0)


@modest
@given(tables)
def test_a_field_table_round_trips(table: dict[str, Any]) -> None:
    octets = encode_table(table)
    assert decode_table(memoryview(octets), 0) == (table, len(octets))


@modest
@given(plain_tables)
def test_pika_and_we_write_the_same_tables(table: dict[str, Any]) -> None:
    chunks: list[bytes] = []
    pika.data.encode_table(chunks, table)
    octets = b"".join(chunks)
    assert decode_table(memoryview(octets), 0) == (table, len(octets))
    assert pika.data.decode_table(encode_table(table), 0) == (table, len(encode_table(table)))


@pytest.mark.parametrize("kind", ["A", "F"])
def test_excessive_nesting_is_the_peers_fault(kind: str) -> None:
    octets = b"V"
    for _ in range(MAX_DEPTH + 5):
        inner = octets if kind == "A" else b"\x01k" + octets
        octets = kind.encode() + len(inner).to_bytes(4, "big") + inner
    content = b"\x01k" + octets
    with pytest.raises(PeerError, match="nested"):
        decode_table(memoryview(len(content).to_bytes(4, "big") + content), 0)


@modest
@given(st.binary(max_size=60))
def test_any_bytes_are_a_table_or_the_peers_fault(content: bytes) -> None:
    octets = len(content).to_bytes(4, "big") + content
    try:
        table, end = decode_table(memoryview(octets), 0)
    except PeerError:
        return
    assert end == len(octets)
    assert decode_table(memoryview(encode_table(table)), 0)[0].keys() == table.keys()


# -- methods ---------------------------------------------------------------------------------------------------------


@st.composite
def methods(draw: st.DrawFn) -> Method:
    cls, _ = draw(st.sampled_from(list(METHODS.values())))
    return cls(*(draw(BY_KIND[kind]) for _, kind in kinds_of(cls)))


def kinds_of(cls: type) -> list[tuple[str, str]]:
    """The fields of a class and their types, from its annotations and not from its codec."""
    hints = {
        name: hint for base in reversed(cls.__mro__) for name, hint in vars(base).get("__annotations__", {}).items()
    }
    return [(name, str(hint.__metadata__[0])) for name, hint in hints.items() if hasattr(hint, "__metadata__")]


def pika_name(cls: type, field: str) -> str:
    return OTHER_NAMES.get((cls.__name__, field)) or OTHER_NAMES.get(field, field)


def as_bytes(value: object) -> object:
    """pika does not distinguish long strings from text."""
    return value.encode() if isinstance(value, str) else value


@settings(max_examples=300)
@given(methods())
def test_pika_and_we_write_and_read_the_same_methods(method: Method) -> None:
    code = CODES[type(method)]
    ours, theirs = pika.spec.methods[code](), pika.spec.methods[code]()
    fields = {field: pika_name(type(method), field) for field, _ in kinds_of(type(method))}
    assert vars(theirs).keys() == set(fields.values())
    for field, name in fields.items():
        setattr(theirs, name, getattr(method, field))
    written = code.to_bytes(4, "big") + b"".join(theirs.encode())
    assert decode_method(memoryview(written)) == method
    ours.decode(encode_method(method)[4:])
    for field, name in fields.items():
        assert as_bytes(getattr(ours, name)) == as_bytes(getattr(method, field))
    if "table" not in dict(kinds_of(type(method))).values():  # where pika chooses other integer widths
        assert encode_method(method) == written


def test_every_method_has_the_same_code_as_in_pika() -> None:
    for code, (cls, _) in METHODS.items():
        assert pika.spec.methods[code].NAME.replace(".", "") == cls.__name__


@modest
@given(methods(), st.data())
def test_a_method_cut_short_or_too_long_is_the_peers_fault(method: Method, data: st.DataObject) -> None:
    octets = encode_method(method)
    with pytest.raises(PeerError):
        decode_method(memoryview(octets + b"\x00"))
    cut = data.draw(st.integers(0, len(octets) - 1))
    with pytest.raises(PeerError):
        decode_method(memoryview(octets[:cut]))


def test_an_unknown_method_is_named_by_its_numbers() -> None:
    with pytest.raises(PeerError, match="60, 999"):
        decode_method(memoryview(bytes.fromhex("003c03e7")))


def test_consecutive_bits_share_an_octet() -> None:
    """queue.declare: passive, durable, exclusive, auto-delete and no-wait in one octet, lowest bit first."""
    for bits in itertools.product((False, True), repeat=5):
        cls, _ = METHODS[50 << 16 | 10]
        octets = encode_method(cls(0, "q", *bits))
        assert octets[8] == sum(bit << shift for shift, bit in enumerate(bits))


def test_a_short_string_above_255_bytes_cannot_be_encoded() -> None:
    cls, _ = METHODS[50 << 16 | 10]
    with pytest.raises(ValueError, match="256 bytes"):
        encode_method(cls(0, "q" * 256))


# -- properties ------------------------------------------------------------------------------------------------------

properties = st.builds(
    Properties,
    **{
        name: st.none() | (plain_tables if name == "headers" else BY_KIND[kind])
        for name, kind in {
            "content_type": "shortstr", "content_encoding": "shortstr", "headers": "table", "delivery_mode": "octet",
            "priority": "octet", "correlation_id": "shortstr", "reply_to": "shortstr", "expiration": "shortstr",
            "message_id": "shortstr", "timestamp": "longlong", "type": "shortstr", "user_id": "shortstr",
            "app_id": "shortstr", "cluster_id": "shortstr",
        }.items()
    },
)  # fmt: skip


@modest
@given(st.integers(0, 2**64 - 1), properties)
def test_pika_and_we_write_the_same_properties(body_size: int, ours: Properties) -> None:
    octets = encode_header(body_size, ours)
    assert decode_header(memoryview(octets)) == (body_size, ours)
    given_values = {field.name: getattr(ours, field.name) for field in field_specs(Properties)}
    theirs = b"".join(pika.spec.BasicProperties(**given_values).encode())
    assert decode_header(memoryview(octets[:12] + theirs)) == (body_size, ours)
    read = pika.spec.BasicProperties()
    read.decode(octets[12:])
    assert {name: getattr(read, name) for name in given_values} == given_values


def test_a_second_set_of_property_flags_must_be_empty() -> None:
    start = bytes.fromhex("003c 0000 0000000000000005")
    assert decode_header(memoryview(start + b"\x10\x01\x00\x00\x02")) == (5, Properties(delivery_mode=2))
    with pytest.raises(PeerError, match="does not have"):
        decode_header(memoryview(start + b"\x10\x01\x80\x00\x02"))


@pytest.mark.parametrize(
    "octets", ["003c", "003d 0000 0000000000000005 0000", "003c 0001 0000000000000005 0000",
               "003c 0000 0000000000000005 0002", "003c 0000 0000000000000005 0000 00",
               "003c 0000 0000000000000005 8000", "003c 0000 0000000000000005 8000 0161 00"],
)  # fmt: skip
def test_a_wrong_content_header_is_the_peers_fault(octets: str) -> None:
    with pytest.raises(PeerError):
        decode_header(memoryview(bytes.fromhex(octets)))
