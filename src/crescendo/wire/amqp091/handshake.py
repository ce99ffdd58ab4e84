"""How do two peers agree on AMQP 0-9-1, and how does a client authenticate?

Protocol header, sign-in (PLAIN, EXTERNAL, ANONYMOUS) and tuning (sections 2.2.4 and 4.2.2), for client and server. Each
step takes what arrived and returns the answer. The server accepts every client: it is for sinks and tests.
"""

from dataclasses import dataclass
from typing import NamedTuple

from crescendo.model.errors import PeerError
from crescendo.wire.amqp091.connection_methods import (
    ConnectionOpen,
    ConnectionOpenOk,
    ConnectionSecure,
    ConnectionStart,
    ConnectionStartOk,
    ConnectionTune,
    ConnectionTuneOk,
)
from crescendo.wire.amqp091.frames import METHOD_FRAME, MIN_FRAME_MAX, PROTOCOL_HEADER
from crescendo.wire.amqp091.methods import Method
from crescendo.wire.amqp091.types import Table

PLAIN, EXTERNAL, ANONYMOUS = "PLAIN", "EXTERNAL", "ANONYMOUS"
CAPABILITIES: Table = {
    "publisher_confirms": True,
    "exchange_exchange_bindings": True,
    "basic.nack": True,
    "consumer_cancel_notify": True,
    "connection.blocked": True,
    "authentication_failure_close": True,  # else a wrong password closes the socket without a reason
}
_PROPERTIES: Table = {"product": "Crescendo", "platform": "Python", "capabilities": CAPABILITIES}


class HandshakeRefusedError(PeerError):
    """The connection was refused, for a reason that the user can act on."""


@dataclass(frozen=True)
class SignIn:
    """A SASL mechanism and its response; the secret is never shown."""

    mechanism: str
    response: bytes

    def __repr__(self) -> str:
        return f"SignIn({self.mechanism})"


def plain(user: str, password: str) -> SignIn:
    return SignIn(PLAIN, b"\0" + user.encode() + b"\0" + password.encode())


def external(identity: str = "") -> SignIn:
    """Sign in as the identity of the transport: a client certificate."""
    return SignIn(EXTERNAL, identity.encode())


class Limits(NamedTuple):
    """Negotiated limits: the highest channel, the largest frame in bytes, the heartbeat interval in seconds."""

    channel_max: int = 2047
    frame_max: int = 131_072
    heartbeat_s: int = 0


def agreed(ours: Limits, theirs: Limits) -> Limits:
    """The smaller value of both; 0 means no preference."""
    limits = Limits(*(min(a, b) if a and b else a or b for a, b in zip(ours, theirs, strict=True)))
    if limits.frame_max < MIN_FRAME_MAX:
        raise PeerError(f"a maximum frame size of {limits.frame_max} bytes; the protocol demands {MIN_FRAME_MAX}")
    return limits


class ClientHandshake:
    """The client's side: sign in, tune, open the virtual host."""

    def __init__(self, sign_in: SignIn | None, virtual_host: str, limits: Limits, name: str) -> None:
        self._sign_in = sign_in
        self._virtual_host = virtual_host
        self._properties = {**_PROPERTIES, "connection_name": name} if name else _PROPERTIES
        self._expected: type[Method] = ConnectionStart
        self.limits = limits
        self.remote_properties: Table = {}
        self.done = False

    def answer(self, method: Method) -> list[Method]:
        if isinstance(method, ConnectionSecure):
            raise HandshakeRefusedError(
                "the system demands a sign-in of several steps, which PLAIN and EXTERNAL do not have"
            )
        if not isinstance(method, self._expected):
            raise PeerError(f"{type(method).__name__} instead of {self._expected.__name__}")
        match method:
            case ConnectionStart():
                return self._start(method)
            case ConnectionTune(channel_max=channel_max, frame_max=frame_max, heartbeat=heartbeat_s):
                self._expected = ConnectionOpenOk
                self.limits = agreed(self.limits, Limits(channel_max, frame_max, heartbeat_s))
                return [ConnectionTuneOk(*self.limits), ConnectionOpen(self._virtual_host)]
            case _:
                self.done = True
                return []

    def _start(self, start: ConnectionStart) -> list[Method]:
        if (start.version_major, start.version_minor) != (0, 9):
            raise HandshakeRefusedError(
                f"the system speaks AMQP {start.version_major}-{start.version_minor}, not AMQP 0-9-1"
            )
        self._expected = ConnectionTune
        self.remote_properties = start.server_properties
        offered = start.mechanisms.decode(errors="replace").split()
        sign_in = self._sign_in
        if sign_in is None:
            # No user was given: ANONYMOUS where it is offered, else the default account of most brokers.
            sign_in = SignIn(ANONYMOUS, b"") if ANONYMOUS in offered else plain("guest", "guest")
        if sign_in.mechanism not in offered:
            offered_names = ", ".join(offered) or "nothing"
            raise HandshakeRefusedError(f"the system offers {offered_names} for sign-in but not {sign_in.mechanism}")
        return [ConnectionStartOk(self._properties, sign_in.mechanism, sign_in.response)]


class ServerHandshake:
    """The server's side."""

    def __init__(self, limits: Limits) -> None:
        self._expected: type[Method] = ConnectionStartOk
        self.limits = limits
        self.remote_properties: Table = {}
        self.done = False

    def start(self) -> Method:
        mechanisms = " ".join((PLAIN, EXTERNAL, ANONYMOUS)).encode()
        return ConnectionStart(server_properties=_PROPERTIES, mechanisms=mechanisms)

    def answer(self, method: Method) -> list[Method]:
        if not isinstance(method, self._expected):
            raise PeerError(f"{type(method).__name__} instead of {self._expected.__name__}")
        match method:
            case ConnectionStartOk(client_properties=properties):
                self.remote_properties = properties
                self._expected = ConnectionTuneOk
                return [ConnectionTune(*self.limits)]
            case ConnectionTuneOk(channel_max=channel_max, frame_max=frame_max, heartbeat=heartbeat_s):
                self._expected = ConnectionOpen
                self.limits = agreed(self.limits, Limits(channel_max, frame_max, heartbeat_s))
                return []
            case _:
                self.done = True
                return [ConnectionOpenOk()]


def check_first_bytes(octets: bytes) -> None:
    """Check the first bytes of a server: a method, or the header of the protocol that it speaks instead."""
    if octets[0] == METHOD_FRAME:
        return
    if octets[:4] != b"AMQP":
        raise HandshakeRefusedError(f"the system does not speak AMQP: it began with {octets!r}")
    check_header(octets)


def check_header(octets: bytes) -> None:
    """Refuse a peer whose protocol header names another version."""
    if octets == PROTOCOL_HEADER:
        return
    if octets[:4] != b"AMQP":
        raise HandshakeRefusedError(f"the peer does not speak AMQP: it began with {octets!r}")
    kind, major, minor, revision = octets[4:8]
    version = f"{major}-{minor}-{revision}" if major == 0 else f"{major}.{minor}.{revision}"
    raise HandshakeRefusedError(f"the system speaks AMQP {version} (protocol {kind}), not AMQP 0-9-1")
