"""How is Parquet's metadata encoded?

In Thrift's compact protocol, of which this module has as much as footers and page headers need. A value is encoded
together with its type; a struct is a mapping from field numbers, in ascending order, to encoded values. Writes only;
nothing here reads.
"""

from collections.abc import Mapping, Sequence

Coded = tuple[int, bytes]  # the protocol's type number, and the encoded value

TRUE: Coded = (1, b"")  # the type alone says true; there are no value bytes
_BYTE, _I32, _I64, _BINARY, _LIST, _STRUCT = 3, 5, 6, 8, 9, 12
_SHORT_LIST = 15
_ONE_BYTE = [bytes((number,)) for number in range(0x80)]  # most numbers are this small


def varint(number: int) -> bytes:
    """Seven bits per byte, the lowest first; the eighth says that more follow."""
    if number <= 0x7F:
        return _ONE_BYTE[number]
    coded = bytearray()
    while number > 0x7F:
        coded.append(number & 0x7F | 0x80)
        number >>= 7
    coded.append(number)
    return bytes(coded)


def zigzag(number: int) -> bytes:
    """Signed, up to 64 bits: numbers near zero stay short, whatever their sign."""
    return varint(number << 1 ^ number >> 63)


def byte(number: int) -> Coded:
    return _BYTE, bytes((number,))


def i32(number: int) -> Coded:
    return _I32, zigzag(number)


def i64(number: int) -> Coded:
    return _I64, zigzag(number)


def text(value: str) -> Coded:
    octets = value.encode()
    return _BINARY, varint(len(octets)) + octets


def list_of(items: Sequence[Coded]) -> Coded:
    """A list of items of one type; an empty list is one of structs."""
    kind = items[0][0] if items else _STRUCT
    size = bytes((len(items) << 4 | kind,)) if len(items) < _SHORT_LIST else bytes((0xF0 | kind,)) + varint(len(items))
    return _LIST, size + b"".join(coded for _, coded in items)


def struct(fields: Mapping[int, Coded]) -> Coded:
    """A struct of fields whose numbers increase by at most 15."""
    coded = bytearray()
    before = 0
    for number, (kind, octets) in fields.items():
        coded.append(number - before << 4 | kind)
        coded += octets
        before = number
    coded.append(0)
    return _STRUCT, bytes(coded)
