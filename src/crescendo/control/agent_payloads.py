"""What do the requests to an agent and its answers contain?

One frozen value per payload. What a source or a handler may be is for the agent to say.
"""

from typing import Annotated, Any

from msgspec import Meta, field

from crescendo.control.notes import NotePayload

AGENT = "agent"
"""The role of an agent."""

_Name = Annotated[str, Meta(max_length=255)]


class AgentSource(NotePayload, frozen=True):
    """AGENT_SOURCE: where its handlers are, and at which branch or commit."""

    source: Annotated[str, Meta(min_length=1, max_length=2000)]
    branch: _Name = ""


class UserCommand(NotePayload, frozen=True):
    """USER_COMMAND_1: run the handler of this name, with parameters that it reads as JSON from standard input."""

    command: Annotated[str, Meta(min_length=1, max_length=255)]
    parameters: dict[str, Any] = field(default_factory=dict)
    cure: _Name = ""  # the command that undoes it, which the agent runs at its end unless it was asked to before


class FetchedSource(NotePayload, frozen=True):
    """The answer to AGENT_SOURCE: the commit that was checked out, and the commands that it has."""

    commit: str
    commands: list[str]


class StartedHandler(NotePayload, frozen=True):
    """The answer to USER_COMMAND_1: the handler runs."""

    handler: str  # a name of its own in this run
    pid: int
    t_ns: int  # when it started, on the monotonic clock of the agent's host


class EndedHandler(NotePayload, frozen=True):
    """NOTIFY_SUCCESS and NOTIFY_FAIL of an agent: how a handler ended."""

    handler: str
    command: str
    code: int  # that it exited with; negative for a signal
    reason: str  # which limit ended it; empty if none
    output: str
    t_ns: int
    left: int = 0  # processes that it had left behind, which were ended


class HandlerNote(NotePayload, frozen=True):
    """LOG as a notification: what a handler says to all listeners."""

    handler: str
    lines: list[str]
