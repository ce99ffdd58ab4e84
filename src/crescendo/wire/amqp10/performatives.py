"""Which performatives can AMQP 1.0 peers send?

Each performative is a value with the field names of the specification (parts 2, 3 and 5). One table maps descriptor
codes to classes and fields to types, for both directions. A field of the wrong type is the peer's fault.
"""

from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import Struct

from crescendo.model.errors import PeerError
from crescendo.wire.amqp10.constructors import (
    EMPTY_LIST,
    NULL,
    encode_binary,
    encode_bool,
    encode_string,
    encode_symbol,
    encode_uint,
    encode_ulong,
)
from crescendo.wire.amqp10.decoding import decode
from crescendo.wire.amqp10.types import Array, Described, Symbol, UByte, UInt, ULong, UShort, encode, encode_items


class Composite(Struct):
    """A described list. None means that the field is absent."""


class Open(Composite):
    container_id: str
    hostname: str | None = None
    max_frame_size: int | None = None
    channel_max: int | None = None
    idle_time_out: int | None = None
    outgoing_locales: Any = None
    incoming_locales: Any = None
    offered_capabilities: Any = None
    desired_capabilities: Any = None
    properties: dict[Any, Any] | None = None


class Begin(Composite):
    remote_channel: int | None = None
    next_outgoing_id: int = 0
    incoming_window: int = 0
    outgoing_window: int = 0
    handle_max: int | None = None
    offered_capabilities: Any = None
    desired_capabilities: Any = None
    properties: dict[Any, Any] | None = None


class Attach(Composite):
    name: str
    handle: int = 0
    role: bool = False  # False: sender, True: receiver
    snd_settle_mode: int | None = None
    rcv_settle_mode: int | None = None
    source: Any = None
    target: Any = None
    unsettled: dict[Any, Any] | None = None
    incomplete_unsettled: bool | None = None
    initial_delivery_count: int | None = None
    max_message_size: int | None = None
    offered_capabilities: Any = None
    desired_capabilities: Any = None
    properties: dict[Any, Any] | None = None


class Flow(Composite):
    next_incoming_id: int | None = None
    incoming_window: int = 0
    next_outgoing_id: int = 0
    outgoing_window: int = 0
    handle: int | None = None
    delivery_count: int | None = None
    link_credit: int | None = None
    available: int | None = None
    drain: bool | None = None
    echo: bool | None = None
    properties: dict[Any, Any] | None = None


class Transfer(Composite):
    handle: int = 0
    delivery_id: int | None = None
    delivery_tag: bytes | None = None
    message_format: int | None = None
    settled: bool | None = None
    more: bool | None = None
    rcv_settle_mode: int | None = None
    state: Any = None
    resume: bool | None = None
    aborted: bool | None = None
    batchable: bool | None = None


class Disposition(Composite):
    role: bool = True
    first: int = 0
    last: int | None = None
    settled: bool | None = None
    state: Any = None
    batchable: bool | None = None


class Detach(Composite):
    handle: int = 0
    closed: bool | None = None
    error: Any = None


class End(Composite):
    error: Any = None


class Close(Composite):
    error: Any = None


class Error(Composite):
    condition: str = ""
    description: str | None = None
    info: dict[Any, Any] | None = None

    def __str__(self) -> str:
        return f"{self.condition}: {self.description}" if self.description else str(self.condition)


class Received(Composite):
    section_number: int = 0
    section_offset: int = 0


class Accepted(Composite):
    pass


class Rejected(Composite):
    error: Any = None


class Released(Composite):
    pass


class Modified(Composite):
    delivery_failed: bool | None = None
    undeliverable_here: bool | None = None
    message_annotations: dict[Any, Any] | None = None


class Source(Composite):
    address: Any = None
    durable: int | None = None
    expiry_policy: str | None = None
    timeout: int | None = None
    dynamic: bool | None = None
    dynamic_node_properties: dict[Any, Any] | None = None
    distribution_mode: str | None = None
    filter: dict[Any, Any] | None = None
    default_outcome: Any = None
    outcomes: Any = None
    capabilities: Any = None


class Target(Composite):
    address: Any = None
    durable: int | None = None
    expiry_policy: str | None = None
    timeout: int | None = None
    dynamic: bool | None = None
    dynamic_node_properties: dict[Any, Any] | None = None
    capabilities: Any = None


class SaslMechanisms(Composite):
    sasl_server_mechanisms: Any = None


class SaslInit(Composite):
    mechanism: str = ""
    initial_response: bytes | None = None
    hostname: str | None = None


class SaslChallenge(Composite):
    challenge: bytes = b""


class SaslResponse(Composite):
    response: bytes = b""


class SaslOutcome(Composite):
    code: int = 0
    additional_data: bytes | None = None


class Header(Composite):
    """The first section of a message."""

    durable: bool | None = None
    priority: int | None = None
    ttl: int | None = None
    first_acquirer: bool | None = None
    delivery_count: int | None = None


Field = tuple[Callable[[Any], bytes], tuple[type, ...]]

_UINT: Field = (encode_uint, (UInt,))
_ULONG: Field = (encode_ulong, (ULong,))
_USHORT: Field = (lambda value: encode(UShort(value)), (UShort,))
_UBYTE: Field = (lambda value: encode(UByte(value)), (UByte,))
_BOOL: Field = (encode_bool, (bool,))
_STRING: Field = (encode_string, (str,))
_SYMBOL: Field = (encode_symbol, (Symbol,))
_BINARY: Field = (encode_binary, (bytes,))
_MAP: Field = (encode, (dict,))
_ANY: Field = (lambda value: encode_value(value), (object,))  # noqa: PLW0108 - defined further down
_SYMBOLS: Field = (
    lambda value: encode(Array(Symbol(item) for item in value) if isinstance(value, list | tuple) else Symbol(value)),
    (list, Array, Symbol),  # some brokers send a list where the specification demands an array
)

_FIELDS: dict[type[Composite], tuple[int, tuple[Field, ...]]] = {
    Open: (0x10, (_STRING, _STRING, _UINT, _USHORT, _UINT, _SYMBOLS, _SYMBOLS, _SYMBOLS, _SYMBOLS, _MAP)),
    Begin: (0x11, (_USHORT, _UINT, _UINT, _UINT, _UINT, _SYMBOLS, _SYMBOLS, _MAP)),
    Attach: (
        0x12,
        (_STRING, _UINT, _BOOL, _UBYTE, _UBYTE, _ANY, _ANY, _MAP, _BOOL, _UINT, _ULONG, _SYMBOLS, _SYMBOLS, _MAP),
    ),
    Flow: (0x13, (_UINT, _UINT, _UINT, _UINT, _UINT, _UINT, _UINT, _UINT, _BOOL, _BOOL, _MAP)),
    Transfer: (0x14, (_UINT, _UINT, _BINARY, _UINT, _BOOL, _BOOL, _UBYTE, _ANY, _BOOL, _BOOL, _BOOL)),
    Disposition: (0x15, (_BOOL, _UINT, _UINT, _BOOL, _ANY, _BOOL)),
    Detach: (0x16, (_UINT, _BOOL, _ANY)),
    End: (0x17, (_ANY,)),
    Close: (0x18, (_ANY,)),
    Error: (0x1D, (_SYMBOL, _STRING, _MAP)),
    Received: (0x23, (_UINT, _ULONG)),
    Accepted: (0x24, ()),
    Rejected: (0x25, (_ANY,)),
    Released: (0x26, ()),
    Modified: (0x27, (_BOOL, _BOOL, _MAP)),
    Source: (0x28, (_ANY, _UINT, _SYMBOL, _UINT, _BOOL, _MAP, _SYMBOL, _MAP, _ANY, _SYMBOLS, _SYMBOLS)),
    Target: (0x29, (_ANY, _UINT, _SYMBOL, _UINT, _BOOL, _MAP, _SYMBOLS)),
    SaslMechanisms: (0x40, (_SYMBOLS,)),
    SaslInit: (0x41, (_SYMBOL, _BINARY, _STRING)),
    SaslChallenge: (0x42, (_BINARY,)),
    SaslResponse: (0x43, (_BINARY,)),
    SaslOutcome: (0x44, (_UBYTE, _BINARY)),
    Header: (0x70, (_BOOL, _UBYTE, _UINT, _BOOL, _UINT)),
}
_MANDATORY: dict[type[Composite], set[str]] = {
    Open: {"container_id"},
    Begin: {"next_outgoing_id", "incoming_window", "outgoing_window"},
    Attach: {"name", "handle", "role"},
    Flow: {"incoming_window", "next_outgoing_id", "outgoing_window"},
    Transfer: {"handle"},
    Disposition: {"role", "first"},
    Detach: {"handle"},
    Error: {"condition"},
    Received: {"section_number", "section_offset"},
    SaslMechanisms: {"sasl_server_mechanisms"},
    SaslInit: {"mechanism"},
    SaslChallenge: {"challenge"},
    SaslResponse: {"response"},
    SaslOutcome: {"code"},
}
_BY_CODE = {code: (kind, fields) for kind, (code, fields) in _FIELDS.items()}
_NAMES = {kind: msgspec.structs.fields(kind) for kind in _FIELDS}
_BY_SYMBOL = {
    "amqp:error:list": 0x1D, "amqp:received:list": 0x23, "amqp:accepted:list": 0x24, "amqp:rejected:list": 0x25,
    "amqp:released:list": 0x26, "amqp:modified:list": 0x27, "amqp:source:list": 0x28, "amqp:target:list": 0x29,
    "amqp:open:list": 0x10, "amqp:begin:list": 0x11, "amqp:attach:list": 0x12, "amqp:flow:list": 0x13,
    "amqp:transfer:list": 0x14, "amqp:disposition:list": 0x15, "amqp:detach:list": 0x16, "amqp:end:list": 0x17,
    "amqp:close:list": 0x18, "amqp:sasl-mechanisms:list": 0x40, "amqp:sasl-init:list": 0x41,
    "amqp:sasl-challenge:list": 0x42, "amqp:sasl-response:list": 0x43, "amqp:sasl-outcome:list": 0x44,
    "amqp:header:list": 0x70,
}  # fmt: skip


def encode_composite(value: Composite) -> bytes:
    """Encode a performative without its absent trailing fields."""
    code, fields = _FIELDS[type(value)]
    items: list[bytes] = []
    length = 0
    for (encoder, _), item in zip(fields, msgspec.structs.astuple(value), strict=True):
        items.append(NULL if item is None else encoder(item))
        if item is not None:
            length = len(items)
    body = encode_items(items[:length]) if length else EMPTY_LIST
    return b"\x00\x53" + bytes((code,)) + body


def encode_value(value: Any) -> bytes:
    """Encode any value, including nested performatives."""
    return encode_composite(value) if isinstance(value, Composite) else encode(value)


def decode_composite(data: memoryview, position: int = 0) -> tuple[Composite, int]:
    """Decode one performative; return it and the position after it."""
    value, position = decode(data, position)
    composite = as_composite(value)
    if not isinstance(composite, Composite):
        raise PeerError("expected a performative")
    return composite, position


def as_composite(value: Any) -> Any:
    """Turn a known described list into its class; return any other value unchanged."""
    if not isinstance(value, Described):
        return value
    code = value.descriptor
    if isinstance(code, str):
        code = _BY_SYMBOL.get(code)
    entry = _BY_CODE.get(code) if isinstance(code, int) else None
    if entry is None:
        return value
    kind, fields = entry
    items = value.value
    if not isinstance(items, list) or len(items) > len(fields):
        raise PeerError(f"{kind.__name__.lower()} has unexpected fields")
    arguments: dict[str, Any] = {}
    for declared, (_, types), item in zip(_NAMES[kind], fields, items, strict=False):
        if item is None:
            continue
        # The exact type: a subclass of int, str or bytes is another AMQP type.
        if types is not _ANY[1] and (type(item) not in types or (types is _SYMBOLS[1] and not _is_symbols(item))):
            raise PeerError(f"{kind.__name__.lower()}.{declared.name} has the wrong type")
        arguments[declared.name] = as_composite(item) if isinstance(item, Described) else item
    missing = _MANDATORY.get(kind, set()) - arguments.keys()
    if missing:
        raise PeerError(f"{kind.__name__.lower()} lacks the mandatory field {min(missing)}")
    return kind(**arguments)


def _is_symbols(item: Any) -> bool:
    return isinstance(item, Symbol) or all(type(entry) is Symbol for entry in item)
