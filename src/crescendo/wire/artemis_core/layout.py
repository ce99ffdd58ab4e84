"""In which bytes may a message differ from the one that it repeats?

Only in fields whose every value is valid, so that a run means what the scalar codec would have made of it, which alone
decides what a frame means.
"""

from typing import NamedTuple

import numpy as np
from msgspec.structs import replace

from crescendo.wire.artemis_core.messages import PACKET_HEADER_BYTES, CoreMessage, MessageSpans
from crescendo.wire.artemis_core.packets import ReceiveMessage
from crescendo.wire.frame_layout import FrameLayout, LengthField, frame_layout

_ID_BYTES = 8
_BODY_END = LengthField(at=PACKET_HEADER_BYTES, added=PACKET_HEADER_BYTES)
"""The end of the body is counted from the start of the frame, as if the field itself were not there."""
_FIRST_DELIVERY = 1


class SharedFields(NamedTuple):
    """What a message shares with its repetitions."""

    consumer: int
    redelivered: bool
    message: CoreMessage  # without its body; its numbers are those of the first


Layout = FrameLayout[SharedFields]


def layout_of(octets: memoryview, packet: ReceiveMessage, spans: MessageSpans) -> Layout:
    """The layout of a decoded message."""
    same = np.full(len(octets), 0xFF, np.uint8)
    same[spans.body_start : spans.body_end] = 0
    same[spans.id_start : spans.id_start + _ID_BYTES] = 0
    same[slice(*spans.user_id)] = 0
    same[spans.after_type : spans.end] = 0
    return frame_layout(
        octets,
        same,
        body=(spans.body_start, spans.body_end),
        body_lengths=(_BODY_END,),
        message_id=(spans.id_start, spans.id_start + _ID_BYTES),
        shared=SharedFields(packet.consumer, is_redelivered(packet.deliveries), replace(packet.message, body=b"")),
    )


def is_redelivered(deliveries: int) -> bool:
    return deliveries > _FIRST_DELIVERY
