"""What does an AMQP 1.0 message carry besides the bytes of its body?

The sections that a user's message or a management request needs: properties for addressing an answer, application
properties, and a body of data or of one AMQP value. Unknown sections are skipped. It keeps no annotations and writes
none, and the load path does not use it: messages are decoded completely, one at a time.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from crescendo.model.errors import PeerError
from crescendo.wire.amqp10.decoding import decode
from crescendo.wire.amqp10.types import Described, ULong, encode

PROPERTIES, APPLICATION_PROPERTIES, DATA, SEQUENCE, VALUE = 0x73, 0x74, 0x75, 0x76, 0x77
_NAMES = {
    "amqp:properties:list": PROPERTIES,
    "amqp:application-properties:map": APPLICATION_PROPERTIES,
    "amqp:data:binary": DATA,
    "amqp:amqp-sequence:list": SEQUENCE,
    "amqp:amqp-value:*": VALUE,
}
_MESSAGE_ID, _TO, _SUBJECT, _REPLY_TO, _CORRELATION_ID = 0, 2, 3, 4, 5  # positions in the properties section


@dataclass(frozen=True)
class Amqp10Message:
    """One message. A body of bytes is sent as data, anything else as one AMQP value (map, list, string, number)."""

    body: Any = b""
    application_properties: Mapping[str, Any] = field(default_factory=dict)
    message_id: Any = None
    to: str | None = None
    subject: str | None = None
    reply_to: str | None = None
    correlation_id: Any = None


def encode_message(message: Amqp10Message) -> bytes:
    """Encode the sections that are present, in the order that the specification requires."""
    properties = [message.message_id, None, message.to, message.subject, message.reply_to, message.correlation_id]
    while properties and properties[-1] is None:
        properties.pop()
    sections: list[tuple[int, Any]] = []
    if properties:
        sections.append((PROPERTIES, properties))
    if message.application_properties:
        sections.append((APPLICATION_PROPERTIES, dict(message.application_properties)))
    sections.append((DATA if isinstance(message.body, bytes) else VALUE, message.body))
    return b"".join(encode(Described(ULong(code), value)) for code, value in sections)


def decode_message(octets: memoryview) -> Amqp10Message:
    """Decode a complete message. Data sections are joined to one body; an invalid message is a PeerError."""
    position = 0
    properties: list[Any] = []
    application_properties: dict[str, Any] = {}
    body: Any = None  # a message need not have a body
    while position < len(octets):
        section, position = decode(octets, position)
        if not isinstance(section, Described):
            raise PeerError("a message section without a descriptor")
        code = section_code(section.descriptor)
        if code == PROPERTIES:
            properties = _checked(section.value, list)
        elif code == APPLICATION_PROPERTIES:
            application_properties = {str(key): value for key, value in _checked(section.value, dict).items()}
        elif code == DATA:
            body = (body if isinstance(body, bytes) else b"") + _checked(section.value, bytes)
        elif code in {SEQUENCE, VALUE}:
            body = section.value
    fields = dict(enumerate(properties))
    return Amqp10Message(
        body=body,
        application_properties=application_properties,
        message_id=fields.get(_MESSAGE_ID),
        to=_text(fields.get(_TO)),
        subject=_text(fields.get(_SUBJECT)),
        reply_to=_text(fields.get(_REPLY_TO)),
        correlation_id=fields.get(_CORRELATION_ID),
    )


def section_code(descriptor: object) -> object:
    """The code of a section, which may also be named by a symbol."""
    return _NAMES.get(descriptor) if isinstance(descriptor, str) else descriptor


def _checked(value: Any, kind: type) -> Any:
    if not isinstance(value, kind):
        raise PeerError(f"a message section holds {type(value).__name__} where {kind.__name__} is required")
    return value


def _text(value: Any) -> str | None:
    return None if value is None else str(value)
