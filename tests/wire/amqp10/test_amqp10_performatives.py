"""Do the performatives have the fields, types and descriptors that the specification gives them?

The table below was written from parts 2.7, 2.8, 3.2, 3.4, 3.5 and 5.3 of the specification, not from the codec.
"""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from amqp10_values import PRIMITIVES, proton_bytes, proton_value, same, symbols, texts
from crescendo.model.errors import PeerError
from crescendo.wire.amqp10 import performatives as p
from crescendo.wire.amqp10.performatives import Composite, decode_composite, encode_composite
from crescendo.wire.amqp10.types import (
    Array,
    Described,
    Int,
    Long,
    Symbol,
    Timestamp,
    UByte,
    UInt,
    ULong,
    UShort,
    encode,
)

# name, descriptor, fields: the type of each, mandatory ones with an exclamation mark
SPECIFICATION: dict[type[Composite], tuple[str, int, str]] = {
    p.Open: ("open", 0x10, "string! string uint ushort uint symbols symbols symbols symbols map"),
    p.Begin: ("begin", 0x11, "ushort uint! uint! uint! uint symbols symbols map"),
    p.Attach: (
        "attach",
        0x12,
        "string! uint! boolean! ubyte ubyte any any map boolean uint ulong symbols symbols map",
    ),
    p.Flow: ("flow", 0x13, "uint uint! uint! uint! uint uint uint uint boolean boolean map"),
    p.Transfer: ("transfer", 0x14, "uint! uint binary uint boolean boolean ubyte any boolean boolean boolean"),
    p.Disposition: ("disposition", 0x15, "boolean! uint! uint boolean any boolean"),
    p.Detach: ("detach", 0x16, "uint! boolean any"),
    p.End: ("end", 0x17, "any"),
    p.Close: ("close", 0x18, "any"),
    p.Error: ("error", 0x1D, "symbol! string map"),
    p.Received: ("received", 0x23, "uint! ulong!"),
    p.Accepted: ("accepted", 0x24, ""),
    p.Rejected: ("rejected", 0x25, "any"),
    p.Released: ("released", 0x26, ""),
    p.Modified: ("modified", 0x27, "boolean boolean map"),
    p.Source: ("source", 0x28, "any uint symbol uint boolean map symbol map any symbols symbols"),
    p.Target: ("target", 0x29, "any uint symbol uint boolean map symbols"),
    p.SaslMechanisms: ("sasl-mechanisms", 0x40, "symbols!"),
    p.SaslInit: ("sasl-init", 0x41, "symbol! binary string"),
    p.SaslChallenge: ("sasl-challenge", 0x42, "binary!"),
    p.SaslResponse: ("sasl-response", 0x43, "binary!"),
    p.SaslOutcome: ("sasl-outcome", 0x44, "ubyte! binary"),
    p.Header: ("header", 0x70, "boolean ubyte uint boolean uint"),
}
TYPES: dict[str, st.SearchStrategy[Any]] = {
    "string": texts,
    "symbol": symbols,
    "symbols": st.lists(symbols, max_size=3).map(Array),
    "boolean": st.booleans(),
    "ubyte": PRIMITIVES[UByte],
    "ushort": PRIMITIVES[UShort],
    "uint": PRIMITIVES[UInt],
    "ulong": PRIMITIVES[ULong],
    "binary": PRIMITIVES[bytes],
    "map": st.dictionaries(symbols, PRIMITIVES[Long], max_size=3),
    "any": texts,
}
EXAMPLES: dict[str, Any] = {
    "string": "text",
    "symbol": Symbol("symbol"),
    "symbols": Array([Symbol("one"), Symbol("two")]),
    "boolean": True,
    "ubyte": UByte(1),
    "ushort": UShort(300),
    "uint": UInt(70_000),
    "ulong": ULong(2**40),
    "binary": b"\0\1",
    "map": {Symbol("key"): "value"},
    "any": None,
}
WRONG: dict[str, list[Any]] = {
    "string": [b"bytes", Symbol("symbol"), UInt(1)],
    "symbol": ["string", UInt(1)],
    "symbols": ["string", Array(["string"]), [Symbol("a"), "é"], UInt(1)],
    "boolean": [UByte(1)],
    "ubyte": [UInt(1), Int(-1), True],
    "ushort": [ULong(2**40), Int(-1), True],
    "uint": [ULong(2**40), Int(-1), Timestamp(1), True],
    "ulong": [UInt(1), Long(-1), True],
    "binary": ["string", []],
    "map": [[], Array()],
}


def fields_of(kind: type[Composite]) -> list[tuple[str, str, bool]]:
    names = [field.name for field in msgspec.structs.fields(kind)]
    types = SPECIFICATION[kind][2].split()
    return [
        (name, type_name.rstrip("!"), type_name.endswith("!")) for name, type_name in zip(names, types, strict=True)
    ]


def wire(kind: type[Composite], items: list[Any]) -> memoryview:
    return memoryview(encode(Described(ULong(SPECIFICATION[kind][1]), items)))


@st.composite
def filled(draw: st.DrawFn) -> tuple[type[Composite], list[Any]]:
    """A performative with all mandatory fields and any choice of the others."""
    kind = draw(st.sampled_from(list(SPECIFICATION)))
    items = []
    for _, type_name, mandatory in fields_of(kind):
        items.append(draw(TYPES[type_name] if mandatory else TYPES[type_name] | st.none()))
    return kind, items


@given(filled())
def test_fields_are_decoded_by_name_and_encoded_unchanged(drawn: tuple[type[Composite], list[Any]]) -> None:
    kind, items = drawn
    data = wire(kind, items)
    composite, end = decode_composite(data)
    assert end == len(data)
    assert type(composite) is kind
    assert same(list(msgspec.structs.astuple(composite)), items)
    assert decode_composite(memoryview(encode_composite(composite)))[0] == composite


@given(filled())
def test_proton_reads_the_same_fields(drawn: tuple[type[Composite], list[Any]]) -> None:
    kind, items = drawn
    read = proton_value(encode_composite(kind(*items)))
    while items and items[-1] is None:
        items.pop()
    assert read.descriptor == SPECIFICATION[kind][1]
    assert same(read.value, items)


@given(filled())
def test_performatives_written_by_proton_are_read(drawn: tuple[type[Composite], list[Any]]) -> None:
    kind, items = drawn
    # `proton_bytes` writes no arrays; a list of symbols must be accepted too, because some brokers send one.
    plain = [list(item) if isinstance(item, Array) else item for item in items]
    composite, _ = decode_composite(memoryview(proton_bytes(Described(ULong(SPECIFICATION[kind][1]), plain))))
    assert same(list(msgspec.structs.astuple(composite)), plain)


@pytest.mark.parametrize("kind", SPECIFICATION, ids=lambda kind: kind.__name__)
def test_symbolic_descriptors_mean_the_same(kind: type[Composite]) -> None:
    items = [EXAMPLES[type_name] for _, type_name, _ in fields_of(kind)]
    named, _ = decode_composite(memoryview(encode(Described(Symbol(f"amqp:{SPECIFICATION[kind][0]}:list"), items))))
    assert named == decode_composite(wire(kind, items))[0]


WRONG_FIELDS = [
    (kind, index, wrong)
    for kind in SPECIFICATION
    for index, (_, type_name, _) in enumerate(fields_of(kind))
    for wrong in WRONG.get(type_name, [])
]


@pytest.mark.parametrize(
    ("kind", "index", "wrong"), WRONG_FIELDS, ids=[f"{k.__name__}-{i}-{w!r}" for k, i, w in WRONG_FIELDS]
)
def test_a_field_of_the_wrong_type_is_the_peers_fault(kind: type[Composite], index: int, wrong: Any) -> None:
    items = [EXAMPLES[type_name] for _, type_name, _ in fields_of(kind)]
    items[index] = wrong
    with pytest.raises(PeerError, match=f"{kind.__name__.lower()}.{fields_of(kind)[index][0]}"):
        decode_composite(wire(kind, items))


MANDATORY = [(kind, name) for kind in SPECIFICATION for name, _, mandatory in fields_of(kind) if mandatory]


@pytest.mark.parametrize(("kind", "name"), MANDATORY, ids=[f"{k.__name__}.{n}" for k, n in MANDATORY])
@pytest.mark.parametrize("cut", [False, True], ids=["null", "cut"])
def test_a_missing_mandatory_field_is_the_peers_fault(kind: type[Composite], name: str, cut: bool) -> None:
    fields = fields_of(kind)
    items = [None if field == name else EXAMPLES[type_name] for field, type_name, _ in fields]
    if cut:
        items = items[: [field for field, _, _ in fields].index(name)]
    with pytest.raises(PeerError, match=f"{kind.__name__.lower()} lacks"):
        decode_composite(wire(kind, items))


def test_extra_fields_and_non_performatives_are_refused() -> None:
    for value in (
        Described(ULong(0x24), [True]),
        Described(ULong(0x18), {}),
        Described(ULong(0x99), []),
        Described(Symbol("amqp:close"), []),
        [],
        None,
    ):
        with pytest.raises(PeerError):
            decode_composite(memoryview(encode(value)))


def test_nested_outcomes_and_errors_are_decoded() -> None:
    rejected = Described(ULong(0x25), [Described(ULong(0x1D), [Symbol("amqp:not-allowed"), "because"])])
    disposition, _ = decode_composite(wire(p.Disposition, [True, UInt(3), UInt(9), True, rejected]))
    assert isinstance(disposition, p.Disposition)
    assert isinstance(disposition.state, p.Rejected)
    assert str(disposition.state.error) == "amqp:not-allowed: because"
