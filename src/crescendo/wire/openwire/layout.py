"""In which bytes may a dispatched message differ from the one that it repeats?

Only in fields whose every value is valid, so that a run means what the scalar codec would have made of it, which alone
decides what a frame means.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from crescendo.model.errors import PeerError
from crescendo.wire.frame_layout import FrameLayout, LengthField, frame_layout
from crescendo.wire.openwire.identifiers import ConsumerId, MessageId, ProducerId
from crescendo.wire.openwire.messages import Message, MessageDispatch, TextMessage
from crescendo.wire.openwire.structures import FieldSpan, Structure

Octets = npt.NDArray[np.uint8]

_PRESENCE_AND_TEXT_LENGTH = 3
_PRESENCE_AND_CONTENT_LENGTH = 5
_LENGTH = 4  # bytes of the length of a content, and of a text in it
_VARYING: dict[type[Structure], dict[str, int]] = {
    MessageDispatch: {"command_id": 0},
    MessageId: {"text_view": _PRESENCE_AND_TEXT_LENGTH, "sequence": 0, "broker_sequence": 0},
    ProducerId: {"connection": _PRESENCE_AND_TEXT_LENGTH, "value": 0, "session": 0},
    Message: {
        "command_id": 0, "group_sequence": 0, "persistent": 0, "expiration_ms": 0, "priority": 0, "timestamp_ms": 0,
        "properties": _PRESENCE_AND_CONTENT_LENGTH, "arrival_ms": 0, "broker_in_ms": 0, "broker_out_ms": 0,
    },
}  # fmt: skip
"""The fields in which the messages of a run may differ, and how many bytes at the start of each are its length."""
ADVISORIES = "ActiveMQ.Advisory."


class SharedFields(NamedTuple):
    """What a message shares with its repetitions."""

    destination: bytes  # as encoded, for acknowledgements
    consumer: int
    redelivered: bool
    message: Message  # without its content; its numbers are those of the first


Layout = FrameLayout[SharedFields]


def layout_of(octets: memoryview, dispatch: MessageDispatch, spans: list[FieldSpan]) -> Layout:
    """The layout of a decoded dispatch; PeerError if it lacks an address or an id, or its text has the wrong length."""
    message, consumer = dispatch.message, dispatch.consumer_id
    if message is None or message.message_id is None or not isinstance(consumer, ConsumerId):
        raise PeerError("a dispatched message without an id or without a consumer")
    # Of several, the first: a structure within the message, which may have the same fields, comes after them.
    found = {(span.owner, span.field): span for span in reversed(spans)}
    kind = type(message)
    content = found[kind, "content"]
    body_start = content.end - len(message.content or b"")
    lengths: tuple[LengthField, ...] = () if message.content is None else (LengthField(body_start - _LENGTH),)
    if kind is TextMessage and message.content and not message.compressed:
        lengths += (LengthField(body_start),)
        body_start += _LENGTH
        if int.from_bytes(message.content[:_LENGTH], "big") != content.end - body_start:
            raise PeerError("a text message whose length does not fit its content")
    same = np.full(len(octets), 0xFF, np.uint8)
    same[body_start : content.end] = 0
    # A structure within the message may contain ids and messages of its own, which must not be confused with these.
    if message.data_structure is None:
        _allow_varying(same, spans)
    id_span, destination = found[kind, "message_id"], found[MessageDispatch, "destination"]
    shared = SharedFields(
        bytes(octets[destination.start : destination.end]),
        consumer.value,
        dispatch.redelivery_counter > 0 or message.redelivery_counter > 0,
        replace(message, content=None),
    )
    return frame_layout(
        octets,
        same,
        body=(body_start, content.end),
        body_lengths=lengths,
        message_id=(id_span.start, id_span.end),
        shared=shared,
    )


def is_advisory(message: Message) -> bool:
    """Whether the broker reports about itself, which a subscription with wildcards may match."""
    destination = message.destination
    return destination is not None and (destination.name or "").startswith(ADVISORIES)


def _allow_varying(same: Octets, spans: list[FieldSpan]) -> None:
    for owner, field, start, end in spans:
        fields = _VARYING.get(Message if issubclass(owner, Message) else owner, {})
        if field in fields:
            same[start + fields[field] : end] = 0
