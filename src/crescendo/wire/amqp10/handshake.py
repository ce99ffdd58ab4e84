"""How do two sides agree to speak AMQP 1.0, and who is let in?

Protocol headers and SASL (parts 2.2 and 5.3): ANONYMOUS, PLAIN and, for clients, EXTERNAL. Each step consumes what
arrived and returns what to answer; a peer that speaks something else is refused in words a person understands.
"""

import hmac
from dataclasses import dataclass

from crescendo.model.errors import PeerError
from crescendo.wire.amqp10.frames import PROTOCOL_AMQP, PROTOCOL_SASL, SASL_FRAME, encode_frame
from crescendo.wire.amqp10.performatives import Composite, SaslInit, SaslMechanisms, SaslOutcome

SASL_OK, SASL_AUTH_FAILED = 0, 1
_MAX_NAME_BYTES = 255


class RefusedError(PeerError):
    """We were not let in, for a reason that the person can act on."""


@dataclass(frozen=True)
class Credentials:
    """A user and a password; never shown."""

    user: str
    password: str

    def __repr__(self) -> str:
        return f"Credentials(user={self.user!r})"


class ClientSasl:
    """The client's side: pick a mechanism, wait for the outcome."""

    def __init__(self, credentials: Credentials | None, hostname: str, *, external: bool = False) -> None:
        self._credentials = credentials
        self._external = external  # a certificate says who we are
        self._hostname = hostname
        self.done = False

    def greeting(self) -> bytes:
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
                who = f"user {user!r} with this password" if user is not None else "anonymous users"
                raise RefusedError(f"the system does not let {who} in")
            case SaslOutcome(code=code):
                raise RefusedError(f"the system could not check who we are (SASL outcome {int(code)})")
            case _:
                raise PeerError("something other than a SASL answer during sign-in")

    def _init(self, offer: SaslMechanisms) -> SaslInit:
        offered = offer.sasl_server_mechanisms
        names = [offered] if isinstance(offered, str) else list(offered or [])
        if self._external and self._credentials is None and "EXTERNAL" in names:
            return SaslInit(mechanism="EXTERNAL", initial_response=b"", hostname=self._hostname or None)
        wanted = "ANONYMOUS" if self._credentials is None else "PLAIN"
        if wanted not in names:
            listed = ", ".join(names) or "nothing"
            cure = "give a user and password in the URL" if wanted == "ANONYMOUS" else "leave user and password out"
            raise RefusedError(f"the system offers {listed} for sign-in but not {wanted}; {cure}")
        response = b"anonymous"
        if self._credentials is not None:
            response = b"\0" + self._credentials.user.encode() + b"\0" + self._credentials.password.encode()
        return SaslInit(mechanism=wanted, initial_response=response, hostname=self._hostname or None)


class ServerSasl:
    """The server's side: anonymous when it has no credentials, else PLAIN with exactly those."""

    def __init__(self, credentials: Credentials | None) -> None:
        self._credentials = credentials
        self.done = False

    def greeting(self) -> bytes:
        mechanisms = ["ANONYMOUS", "PLAIN"] if self._credentials is None else ["PLAIN"]
        offer = encode_frame(SaslMechanisms(sasl_server_mechanisms=mechanisms), kind=SASL_FRAME)
        return PROTOCOL_SASL + offer

    def answer(self, performative: Composite | None) -> bytes:
        if not isinstance(performative, SaslInit):
            raise PeerError("something other than a SASL init during sign-in")
        self.done = self._admits(performative)
        code = SASL_OK if self.done else SASL_AUTH_FAILED
        return encode_frame(SaslOutcome(code=code), kind=SASL_FRAME)

    @property
    def optional(self) -> bool:
        """Whether a client may come in without SASL at all."""
        return self._credentials is None

    def _admits(self, init: SaslInit) -> bool:
        if self._credentials is None:
            return init.mechanism in {"ANONYMOUS", "PLAIN"}
        expected = b"\0" + self._credentials.user.encode() + b"\0" + self._credentials.password.encode()
        response = init.initial_response or b""
        if init.mechanism != "PLAIN" or len(response) > 2 * _MAX_NAME_BYTES + 2:
            return False
        return hmac.compare_digest(response[response.find(b"\0") :], expected)


def check_header(header: bytes, expected: bytes) -> None:
    """Refuse a peer that speaks another protocol or version, naming what it speaks."""
    if header == expected:
        return
    if header[:4] != b"AMQP":
        raise RefusedError(f"the system does not speak AMQP: it began with {header!r}")
    if header == PROTOCOL_AMQP:
        raise RefusedError("the system wants no sign-in (SASL), but we offered one")
    if header == PROTOCOL_SASL:
        raise RefusedError("the system wants another sign-in (SASL) after ours; give a user and password in the URL")
    protocol, major, minor, revision = header[4:8]
    if protocol == 0 and major == 0:
        raise RefusedError(f"the system speaks AMQP {major}-{minor}-{revision}, not AMQP 1.0")
    raise RefusedError(f"the system answered with protocol {protocol} version {major}.{minor}.{revision}")
