"""What is one inspector asked to do?

The payload of its SET note: everything an inspector process needs to know, checked when it arrives.
"""

from typing import Annotated

from msgspec import Meta

from crescendo.control.notes import NotePayload


class InspectorAssignment(NotePayload, frozen=True):
    """One inspector's share of a run."""

    peer: str
    run_dir: str
    kind: str
    every_ns: Annotated[int, Meta(gt=0)]
    endpoints: dict[str, str]
    pid: int | None = None
