"""What is one inspector assigned?

The payload of its SET note: everything an inspector process needs to know, validated on arrival.
"""

from typing import Annotated

from msgspec import Meta, field

from crescendo.control.notes import NotePayload


class InspectorAssignment(NotePayload, frozen=True):
    """What one inspector inspects, and how often."""

    kind: str
    every_ns: Annotated[int, Meta(gt=0)]
    endpoints: dict[str, str]
    pid: int | None = None
    durable: bool = True  # whether the recording is synced to disk
    inputs: dict[str, bytes] = field(default_factory=dict)
    """The files that its URLs name, for an inspector that was not given them when it was started."""
