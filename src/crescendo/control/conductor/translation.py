"""What does a note mean to the conductor, and which note carries its request?

Translates between notes on the wire and the conductor's events and commands. A note that has no meaning here, or whose
payload is invalid, becomes None: it cannot be acted on, and must not stop a run either.
"""

from crescendo.control import notes
from crescendo.control.conductor.commands import SendRequest
from crescendo.control.conductor.events import (
    Event,
    Interrupted,
    PeerAnswered,
    PeerFailed,
    PeerFinished,
    PeerJoined,
    PeerLost,
    PeerReported,
    RateRequested,
)
from crescendo.control.conductor.state import RunState
from crescendo.control.notes import EVERYBODY, Failure, FailureReport, Hello, Identity, Note, NoteKind, Statistics
from crescendo.control.request_payloads import SetOptions, SetRequest, options_from
from crescendo.model.errors import PeerError


def event_from_note(note: Note, now_ns: int) -> Event | None:
    """The event that a note stands for; None if it stands for none or its payload is invalid."""
    peer, payload = note.sender.id, note.payload
    try:
        match note.kind, note.command:
            case NoteKind.RESPONSE, notes.Command.OK:
                statistics = Statistics.from_payload(payload) if payload else None
                return PeerAnswered(peer, note.correlation, note.command, True, None, statistics, now_ns)
            case NoteKind.RESPONSE, notes.Command.PROTOCOL_ERROR | notes.Command.INTERNAL_ERROR:
                failure = Failure.from_payload(payload)
                return PeerAnswered(peer, note.correlation, note.command, False, failure, None, now_ns)
            case NoteKind.NOTIFICATION, notes.Command.GROUP_JOIN:
                return PeerJoined(peer, note.sender, Hello.from_payload(payload), now_ns)
            case NoteKind.NOTIFICATION, notes.Command.STATS:
                return PeerReported(peer, Statistics.from_payload(payload), now_ns)
            case NoteKind.NOTIFICATION, _ if "handler" in payload:
                return None  # how a handler of an agent ended, or what it says: the agent records it
            case NoteKind.NOTIFICATION, notes.Command.NOTIFY_SUCCESS:
                return PeerFinished(peer, Statistics.from_payload(payload), now_ns)
            case NoteKind.NOTIFICATION, notes.Command.NOTIFY_FAIL:
                report = FailureReport.from_payload(payload)
                return PeerFailed(peer, report.failure, report.statistics, now_ns)
            case NoteKind.NOTIFICATION, notes.Command.ABNORMAL_DISCONNECT:
                return PeerLost(peer, Failure.from_payload(payload).reason, now_ns)
            case NoteKind.NOTIFICATION, notes.Command.GROUP_LEAVE:
                return PeerLost(peer, "it left the run", now_ns)
            case NoteKind.REQUEST, notes.Command.HALT:
                return Interrupted(now_ns)
            case NoteKind.REQUEST, notes.Command.SET:
                options = options_from(SetRequest.from_payload(payload).options)
                if options.rate is not None and options == SetOptions(rate=options.rate):
                    return RateRequested(options.rate, note.sender, note.correlation, now_ns)
    except PeerError:
        return None
    return None


def is_bound(run: RunState, note: Note) -> bool:
    """Whether a note of a peer comes from the very process that joined under its id; before that, anything may come."""
    peer = run.peers.get(note.sender.id)
    return note.kind is NoteKind.REQUEST or (peer is not None and peer.identity in {None, note.sender})


def note_for(request: SendRequest, sender: Identity, to: Identity | None = None) -> Note:
    """The note that carries a request to the process that joined."""
    session = EVERYBODY if to is None else to.session
    return Note(NoteKind.REQUEST, request.command, request.correlation, sender, request.payload, session)
