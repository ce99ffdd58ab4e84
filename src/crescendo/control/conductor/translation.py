"""What does a note mean to the conductor, and which note carries its request?

The translation between the wire's vocabulary and the conductor's, both ways. A note that means nothing here, or whose
payload makes no sense, is None: it cannot be acted upon, and must not stop a run either.
"""

from crescendo.control import notes
from crescendo.control.conductor.commands import Request
from crescendo.control.conductor.events import Answered, Event, Failed, Finished, Joined, Lost, Reported
from crescendo.control.notes import Breakdown, Failure, Hello, Identity, Kind, Note, Statistics
from crescendo.model.errors import PeerError


def event_from_note(note: Note, now_ns: int) -> Event | None:
    """What a note means to the conductor. None where it means nothing, also where its payload makes no sense."""
    peer, payload = note.sender.id, note.payload
    try:
        match note.kind, note.command:
            case Kind.RESPONSE, notes.Command.OK:
                statistics = Statistics.from_payload(payload) if payload else None
                return Answered(peer, note.correlation, note.command, True, None, statistics, now_ns)
            case Kind.RESPONSE, notes.Command.PROTOCOL_ERROR | notes.Command.INTERNAL_ERROR:
                failure = Failure.from_payload(payload)
                return Answered(peer, note.correlation, note.command, False, failure, None, now_ns)
            case Kind.NOTIFICATION, notes.Command.GROUP_JOIN:
                return Joined(peer, note.sender, Hello.from_payload(payload), now_ns)
            case Kind.NOTIFICATION, notes.Command.STATS:
                return Reported(peer, Statistics.from_payload(payload), now_ns)
            case Kind.NOTIFICATION, notes.Command.NOTIFY_SUCCESS:
                return Finished(peer, Statistics.from_payload(payload), now_ns)
            case Kind.NOTIFICATION, notes.Command.NOTIFY_FAIL:
                breakdown = Breakdown.from_payload(payload)
                return Failed(peer, breakdown.failure, breakdown.statistics, now_ns)
            case Kind.NOTIFICATION, notes.Command.ABNORMAL_DISCONNECT:
                return Lost(peer, Failure.from_payload(payload).reason, now_ns)
    except PeerError:
        return None
    return None


def note_for(request: Request, sender: Identity) -> Note:
    """The note that carries a request."""
    return Note(Kind.REQUEST, request.command, request.correlation, sender, request.payload)
