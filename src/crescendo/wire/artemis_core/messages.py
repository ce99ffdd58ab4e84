"""What does a message look like?

Its body comes first, before the position where it ends; then a dozen headers, and its properties up to the end. Where
each part lies is part of what decoding returns, because the batch path needs it. Properties stay encoded.
"""

from enum import IntEnum
from typing import NamedTuple

from msgspec import Struct

from crescendo.model.errors import PeerError
from crescendo.wire.artemis_core.primitives import Reader, encode_nullable_name
from crescendo.wire.artemis_core.properties import NO_PROPERTIES
from crescendo.wire.java_primitives import ABSENT, BYTE, INT, LONG, PRESENT, encode_boolean

PACKET_HEADER_BYTES = 13
"""The end of a body is counted from the start of a frame in which nothing stands before the message but its header."""
USER_ID_BYTES = 16


class MessageType(IntEnum):
    """What the body is. Those that are missing here are for Java."""

    DEFAULT = 0
    OBJECT = 2
    TEXT = 3
    BYTES = 4
    MAP = 5
    STREAM = 6


class CoreMessage(Struct, frozen=True):
    """A message with its headers, in their order; the broker gives it its number."""

    message_id: int = 0
    address: str | None = None
    user_id: bytes | None = None
    message_type: int = MessageType.BYTES
    durable: bool = False
    expiration_ms: int = 0
    timestamp_ms: int = 0
    priority: int = 4
    properties: bytes = NO_PROPERTIES  # as encoded
    body: bytes | memoryview = b""


class MessageSpans(NamedTuple):
    """Where the parts of a message are that may differ from one to the next."""

    body_start: int
    body_end: int
    id_start: int
    user_id: tuple[int, int]
    after_type: int  # durable, expiration, timestamp, priority and properties follow up to the end
    end: int


def encode_message(message: CoreMessage) -> bytes:
    body = message.body
    return INT.pack(PACKET_HEADER_BYTES + len(body)) + bytes(body) + encode_headers(message)


def encode_headers(message: CoreMessage) -> bytes:
    """A message without its body."""
    user_id = message.user_id
    return b"".join(
        (
            LONG.pack(message.message_id),
            encode_nullable_name(message.address),
            ABSENT if user_id is None else PRESENT + user_id,
            BYTE.pack(message.message_type),
            encode_boolean(message.durable),
            LONG.pack(message.expiration_ms),
            LONG.pack(message.timestamp_ms),
            BYTE.pack(message.priority),
            message.properties,
        )
    )


def read_message(reader: Reader) -> tuple[CoreMessage, MessageSpans]:
    """The message up to the end of the reader, its body as a view."""
    length = reader.integer() - PACKET_HEADER_BYTES
    body_start = reader.position
    body = reader.raw(length)
    return _read_headers(reader, body, body_start)


def read_headers(reader: Reader) -> CoreMessage:
    """A message without its body, up to the end of the reader."""
    return _read_headers(reader, b"", reader.position)[0]


def _read_headers(reader: Reader, body: bytes | memoryview, body_start: int) -> tuple[CoreMessage, MessageSpans]:
    id_start = reader.position
    message_id, address = reader.long(), reader.nullable_name()
    user_id = bytes(reader.raw(USER_ID_BYTES)) if reader.boolean() else None
    user_id_end = reader.position
    message_type = reader.byte()
    after_type = reader.position
    message = CoreMessage(
        message_id,
        address,
        user_id,
        message_type,
        reader.boolean(),
        reader.long(),
        reader.long(),
        reader.byte(),
        bytes(reader.raw(reader.left)),
        body,
    )
    user_id_start = user_id_end - (USER_ID_BYTES if user_id is not None else 0)
    spans = MessageSpans(body_start, id_start, id_start, (user_id_start, user_id_end), after_type, reader.position)
    return message, spans


def text_of(body: bytes | memoryview) -> bytes:
    """The text in the body of a text message, as UTF-8."""
    reader = Reader(memoryview(body))
    text = reader.nullable_name()
    if reader.left:
        raise PeerError(f"{reader.left} bytes after the text of a text message")
    return (text or "").encode()
