"""What does every peer answer in the same way, whatever its role?

PING, GET, STATS, LOG, and the notes for an agent where there is none. Pure: what there is to say comes as a value, the
answer is a command and a payload. Knows no bus; requests that a role carries out are none of its business.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from crescendo import __version__
from crescendo.control.notes import (
    AGENT_COMMANDS,
    PROTOCOL_VERSION,
    Command,
    Failure,
    Note,
    NotePayload,
    Statistics,
)
from crescendo.control.request_payloads import About, LogLines, PeerOffer, Ping, Pong
from crescendo.model.errors import PeerError

Answer = tuple[Command, NotePayload]
_US = 1_000_000


@dataclass(frozen=True)
class PeerFacts:
    """What a peer knows about itself at this moment."""

    scope: str
    state: str
    monotonic_ns: int
    realtime_ns: int
    statistics: Statistics | None = None
    options: dict[str, Any] = field(default_factory=dict)
    dropped: dict[str, int] = field(default_factory=dict)
    lines: Sequence[str] = ()
    run: str = ""
    offer: PeerOffer | None = None


def answer_to(request: Note, facts: PeerFacts) -> Answer | None:
    """The answer, or None if it is for the role to answer."""
    try:
        match request.command:
            case Command.PING:
                asked = Ping.from_payload(request.payload)
                elapsed_us = facts.realtime_ns // 1000 - (asked.sec * _US + asked.usec)
                return Command.PING, Pong(
                    asked.sec, asked.usec, elapsed_us, facts.monotonic_ns, facts.realtime_ns, facts.state, facts.run,
                    facts.offer,
                )  # fmt: skip
            case Command.GET:
                return Command.GET, About(
                    PROTOCOL_VERSION, __version__, facts.scope, facts.state, facts.options, facts.dropped, facts.run
                )
            case Command.STATS:
                return Command.STATS, facts.statistics or Statistics(t_ns=facts.monotonic_ns)
            case Command.LOG:
                return Command.LOG, LogLines(list(facts.lines))
            case command if command in AGENT_COMMANDS:
                return Command.INTERNAL_ERROR, Failure("no agent here", "config")
    except PeerError as err:
        return Command.PROTOCOL_ERROR, Failure(str(err), "peer")
    return None


def is_command_for_peers(command: Command) -> bool:
    """Whether a request with this command means anything; the others are answers and notifications."""
    return command not in {
        Command.OK, Command.PROTOCOL_ERROR, Command.INTERNAL_ERROR, Command.ABNORMAL_DISCONNECT, Command.NOTIFY_FAIL,
        Command.NOTIFY_SUCCESS, Command.NOTIFY_DRAIN_COMPLETE, Command.NOTIFY_TEST_STARTED,
    }  # fmt: skip
