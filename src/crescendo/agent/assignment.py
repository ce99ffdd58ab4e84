"""What is one agent assigned?

The payload of its SET note. What it may fetch and run is in its own configuration, which no note changes.
"""

from typing import Annotated

from msgspec import Meta

from crescendo.control.notes import NotePayload


class AgentAssignment(NotePayload, frozen=True):
    """The source of its handlers; empty if AGENT_SOURCE will name one."""

    source: Annotated[str, Meta(max_length=2000)] = ""
    branch: Annotated[str, Meta(max_length=255)] = ""
    durable: bool = True  # whether the recording is synced to disk
