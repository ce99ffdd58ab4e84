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

_PROPERTIES, _APPLICATION_PROPERTIES, _DATA, _SEQUENCE, _VALUE = 0x73, 0x74, 0x75, 0x76, 0x77
_NAMES = {
    "amqp:properties:list": _PROPERTIES,
    "amqp:application-properties:map": _APPLICATION_PROPERTIES,
    "amqp:data:binary": _DATA,
    "amqp:amqp-sequence:list": _SEQUENCE,
    "amqp:amqp-value:*": _VALUE,
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
        sections.append((_PROPERTIES, properties))
    if message.application_properties:
        sections.append((_APPLICATION_PROPERTIES, dict(message.application_properties)))
    sections.append((_DATA if isinstance(message.body, bytes) else _VALUE, message.body))
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
        code = _NAMES.get(section.descriptor) if isinstance(section.descriptor, str) else section.descriptor
        if code == _PROPERTIES:
            properties = _checked(section.value, list)
        elif code == _APPLICATION_PROPERTIES:
            application_properties = {str(key): value for key, value in _checked(section.value, dict).items()}
        elif code == _DATA:
            body = (body if isinstance(body, bytes) else b"") + _checked(section.value, bytes)
        elif code in {_SEQUENCE, _VALUE}:
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


def _checked(value: Any, kind: type) -> Any:
    if not isinstance(value, kind):
        raise PeerError(f"a message section holds {type(value).__name__} where {kind.__name__} is required")
    return value


def _text(value: Any) -> str | None:
    return None if value is None else str(value)
