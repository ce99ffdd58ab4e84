"""Who may take part, and how does a note prove where it comes from?

A lab is the holder of a token. From the token follows one key for each scope: a run, or the lab itself, in which its
standing peers wait. A note carries an HMAC-SHA256 over its topic and its content under the key of its scope, so it
counts in no other run, on no other topic, and not after a change. Requests that may contain passwords are also
encrypted (AES-256-GCM). Keeps no history: repeats are found by `replay_window`. Reads no file and opens no connection.
"""

import hmac
import secrets
from collections import OrderedDict
from dataclasses import dataclass, field

from crescendo.model.errors import ConfigError, PeerError

TAG_BYTES = 32
MIN_TOKEN_CHARS = 32
_NONCE_BYTES = 12
_SCOPE, _LAB, _SEAL = b"crescendo scope ", b"crescendo lab", b"crescendo seal"
_CACHED_SCOPES = 256


@dataclass(frozen=True)
class NoteScope:
    """One run, or one lab: its name in the topics, and the key of its notes."""

    name: str
    key: bytes = field(repr=False)

    def tag(self, topic: str, body: bytes) -> bytes:
        """The authentication code of a note on this topic."""
        return hmac.digest(self.key, topic.encode() + b"\0" + body, "sha256")

    def is_authentic(self, topic: str, body: bytes, tag: bytes) -> bool:
        return hmac.compare_digest(self.tag(topic, body), tag)

    def encrypt(self, content: bytes) -> bytes:
        """The content, readable with the key only."""
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # 20 ms that most processes do not need

        nonce = secrets.token_bytes(_NONCE_BYTES)
        return nonce + AESGCM(self._seal_key).encrypt(nonce, content, self.name.encode())

    def decrypt(self, content: bytes) -> bytes:
        from cryptography.exceptions import InvalidTag
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        nonce, rest = content[:_NONCE_BYTES], content[_NONCE_BYTES:]
        try:
            return AESGCM(self._seal_key).decrypt(nonce, rest, self.name.encode())
        except (InvalidTag, ValueError) as err:
            raise PeerError("not encrypted with the key of this run") from err

    @property
    def _seal_key(self) -> bytes:
        return hmac.digest(self.key, _SEAL, "sha256")


class Lab:
    """The holder of a token, and the scopes that follow from it."""

    def __init__(self, token: str) -> None:
        if len(token) < MIN_TOKEN_CHARS:
            raise ConfigError(
                f"the token has {len(token)} characters, but at least {MIN_TOKEN_CHARS} are needed; "
                "make one with: (umask 077; openssl rand -hex 32 > lab.token)"
            )
        self.token = token
        self._token = token.encode()
        self._scopes: OrderedDict[str, NoteScope] = OrderedDict()
        self.scope = self.scope_of(f"lab-{hmac.digest(self._token, _LAB, 'sha256').hex()[:12]}")
        """In which the lab's standing peers wait."""

    def scope_of(self, name: str) -> NoteScope:
        """The run of this name; one of the last few hundred is not computed again."""
        scope = self._scopes.pop(name, None)
        if scope is None:
            scope = NoteScope(name, hmac.digest(self._token, _SCOPE + name.encode(), "sha256"))
        self._scopes[name] = scope
        if len(self._scopes) > _CACHED_SCOPES:
            self._scopes.popitem(last=False)
        return scope

    def __repr__(self) -> str:
        return f"Lab({self.scope.name})"


def new_lab() -> Lab:
    """The lab of one run alone: its token is never written anywhere."""
    return Lab(secrets.token_hex(32))


def new_run_name() -> str:
    return secrets.token_hex(8)
