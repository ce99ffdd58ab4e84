"""Which sections does an AMQP 1.0 message have, exactly as they were encoded?

For those who compare what was sent with what arrived: whether a body was data, a value or a sequence matters here, and
so does the type of every property. Nothing is converted. A section whose value no decoder may accept is named, and the
sections after it are read all the same. `messages` is for those who only want the content.
"""

from dataclasses import dataclass, field
from typing import Any

from crescendo.client.amqp10_message import APPLICATION_PROPERTIES, DATA, PROPERTIES, SEQUENCE, VALUE, section_code
from crescendo.model.errors import PeerError
from crescendo.wire.amqp10.decoding import decode, skip
from crescendo.wire.amqp10.performatives import Header, as_composite, encode_composite
from crescendo.wire.amqp10.types import Described, ULong, encode

BODIES = {DATA: "data", SEQUENCE: "sequence", VALUE: "value"}
_CODES = {name: code for code, name in BODIES.items()}
_OTHERS = {0x70: "header", PROPERTIES: "properties", APPLICATION_PROPERTIES: "application properties"}


@dataclass(frozen=True)
class MessageSections:
    """One message; a body of several data sections is joined."""

    body_section: str  # data, value or sequence; empty without a body
    body: Any
    application_properties: dict[str, Any] = field(default_factory=dict)
    properties: tuple[Any, ...] = ()  # message id, user id, to, subject, reply to, correlation id, …
    header: Header = field(default_factory=Header)
    invalid: tuple[str, ...] = ()  # sections that are there, but whose value is not valid AMQP

    def encoded(self) -> bytes:
        return encode_composite(self.header) + self.bare()

    def bare(self) -> bytes:
        """Its sections without the header: what no intermediary may change."""
        sections: list[tuple[int, Any]] = []
        if self.properties:
            sections.append((PROPERTIES, list(self.properties)))
        if self.application_properties:
            sections.append((APPLICATION_PROPERTIES, dict(self.application_properties)))
        sections.append((_CODES[self.body_section], self.body))
        parts = [encode(Described(ULong(code), value)) for code, value in sections]
        return b"".join(parts)


def sections_of(octets: bytes) -> MessageSections:
    """The sections of a complete message; PeerError if it has none.

    Annotations and footers are skipped.
    """
    view, position = memoryview(octets), 0
    header = Header()
    properties: tuple[Any, ...] = ()
    application_properties: dict[str, Any] = {}
    body_section, body = "", None
    invalid: list[str] = []
    while position < len(view):
        start, position = position, skip(view, position)
        try:
            section = decode(view, start)[0]
        except PeerError:
            invalid.append(_name_of(view, start))
            continue
        if not isinstance(section, Described):
            raise PeerError("a message section without a descriptor")
        code, known = section_code(section.descriptor), as_composite(section)
        if isinstance(known, Header):
            header = known
        elif code == PROPERTIES and isinstance(section.value, list):
            properties = tuple(section.value)
        elif code == APPLICATION_PROPERTIES and isinstance(section.value, dict):
            application_properties = {str(key): value for key, value in section.value.items()}
        elif code in BODIES:
            joined = code == DATA and body_section == BODIES[DATA]
            body = body + section.value if joined else section.value
            body_section = BODIES[code]
    return MessageSections(body_section, body, application_properties, properties, header, tuple(invalid))


def _name_of(view: memoryview, start: int) -> str:
    """What a section is called that cannot be decoded."""
    if view[start] != 0:
        raise PeerError("a message section without a descriptor")
    code = section_code(decode(view, start + 1)[0])
    return next((name for known, name in (BODIES | _OTHERS).items() if known == code), "other")
