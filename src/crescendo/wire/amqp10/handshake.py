"""How do two peers agree on AMQP 1.0, and how does a client authenticate?

Protocol headers and SASL (parts 2.2 and 5.3): ANONYMOUS, PLAIN and, for clients, EXTERNAL. Each step takes what arrived
and returns the answer. A peer that speaks another protocol is refused with a readable reason.
"""

import hmac
from dataclasses import dataclass

from crescendo.model.errors import PeerError
from crescendo.wire.amqp10.frames import PROTOCOL_AMQP, PROTOCOL_SASL, SASL_FRAME, encode_frame
from crescendo.wire.amqp10.performatives import Composite, SaslInit, SaslMechanisms, SaslOutcome

SASL_OK, SASL_AUTH_FAILED = 0, 1
_MAX_NAME_BYTES = 255


class HandshakeRefusedError(PeerError):
    """The connection was refused, for a reason that the user can act on."""


@dataclass(frozen=True)
class Credentials:
    """A user and a password; the password is never shown."""

    user: str
    password: str

    def __repr__(self) -> str:
        return f"Credentials(user={self.user!r})"


class ClientSasl:
    """The client's side: choose a mechanism, wait for the outcome."""

    def __init__(self, credentials: Credentials | None, hostname: str, *, external: bool = False) -> None:
        self._credentials = credentials
        self._external = external  # a client certificate identifies us
        self._hostname = hostname
        self.done = False

    def first_bytes(self) -> bytes:
        return PROTOCOL_SASL

    def answer(self, performative: Composite | None) -> bytes:
        match performative:
            case SaslMechanisms():
                return encode_frame(self._init(performative), kind=SASL_FRAME)
            case SaslOutcome(code=0):
                self.done = True
                return b""
            case SaslOutcome(code=1):
                user = self._credentials.user if self._credentials else None
                identity = f"user {user!r} with this password" if user is not None else "anonymous users"
                raise HandshakeRefusedError(f"the system rejects {identity}")
            case SaslOutcome(code=code):
                raise HandshakeRefusedError(f"the system could not authenticate us (SASL outcome {int(code)})")
            case _:
                raise PeerError("a frame other than a SASL answer during sign-in")

    def _init(self, offer: SaslMechanisms) -> SaslInit:
        offered = offer.sasl_server_mechanisms
        names = [offered] if isinstance(offered, str) else list(offered or [])
        if self._external and self._credentials is None and "EXTERNAL" in names:
            return SaslInit(mechanism="EXTERNAL", initial_response=b"", hostname=self._hostname or None)
        wanted = "ANONYMOUS" if self._credentials is None else "PLAIN"
        if wanted not in names:
            offered_names = ", ".join(names) or "nothing"
            cure = "give a user and password in the URL" if wanted == "ANONYMOUS" else "leave user and password out"
            raise HandshakeRefusedError(f"the system offers {offered_names} for sign-in but not {wanted}; {cure}")
        response = b"anonymous"
        if self._credentials is not None:
            response = b"\0" + self._credentials.user.encode() + b"\0" + self._credentials.password.encode()
        return SaslInit(mechanism=wanted, initial_response=response, hostname=self._hostname or None)


class ServerSasl:
    """The server's side: without credentials it accepts any client, else PLAIN with exactly those."""

    def __init__(self, credentials: Credentials | None) -> None:
        self._credentials = credentials
        self.done = False

    def first_bytes(self) -> bytes:
        mechanisms = ["ANONYMOUS", "PLAIN"] if self._credentials is None else ["PLAIN"]
        offer = encode_frame(SaslMechanisms(sasl_server_mechanisms=mechanisms), kind=SASL_FRAME)
        return PROTOCOL_SASL + offer

    def answer(self, performative: Composite | None) -> bytes:
        if not isinstance(performative, SaslInit):
            raise PeerError("a frame other than a SASL init during sign-in")
        self.done = self._accepts(performative)
        code = SASL_OK if self.done else SASL_AUTH_FAILED
        return encode_frame(SaslOutcome(code=code), kind=SASL_FRAME)

    @property
    def optional(self) -> bool:
        """Whether a client may connect without SASL."""
        return self._credentials is None

    def _accepts(self, init: SaslInit) -> bool:
        if self._credentials is None:
            return init.mechanism in {"ANONYMOUS", "PLAIN"}
        expected = b"\0" + self._credentials.user.encode() + b"\0" + self._credentials.password.encode()
        response = init.initial_response or b""
        if init.mechanism != "PLAIN" or len(response) > 2 * _MAX_NAME_BYTES + 2:
            return False
        return hmac.compare_digest(response[response.find(b"\0") :], expected)


def check_header(header: bytes, expected: bytes) -> None:
    """Refuse a peer that speaks another protocol or version, and name it."""
    if header == expected:
        return
    if header[:4] != b"AMQP":
        raise HandshakeRefusedError(f"the system does not speak AMQP: it began with {header!r}")
    if header == PROTOCOL_AMQP:
        raise HandshakeRefusedError("the system does not accept a sign-in (SASL), but we offered one")
    if header == PROTOCOL_SASL:
        raise HandshakeRefusedError(
            "the system demands another sign-in (SASL) after ours; give a user and password in the URL"
        )
    protocol, major, minor, revision = header[4:8]
    if protocol == 0 and major == 0:
        raise HandshakeRefusedError(f"the system speaks AMQP {major}-{minor}-{revision}, not AMQP 1.0")
    raise HandshakeRefusedError(f"the system answered with protocol {protocol} version {major}.{minor}.{revision}")
