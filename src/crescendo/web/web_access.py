"""Who may do what?

On the loopback interface, the bearer of a one-time token is the owner; beyond it, people have accounts with a role.
Either way the browser then holds a cookie; only its hash is stored, so it survives a restart and reading the file gives
nobody access. Passwords are stored as scrypt hashes. Attempts are limited. Knows neither HTTP nor pages.
"""

import hashlib
import hmac
import secrets
import threading
import time
from collections import defaultdict, deque
from enum import IntEnum
from pathlib import Path
from typing import Annotated

from msgspec import Meta, Struct, ValidationError, convert
from msgspec.structs import replace

from crescendo.model.errors import ConfigError
from crescendo.model.suggestions import listing
from crescendo.record.documents import read_or_none, write_document

OWNER = "owner"
SESSION_S = 12 * 3600
LINK_S = 24 * 3600
MIN_PASSWORD_CHARS = 12
MAX_PASSWORD_CHARS = 128
_MIN_DIFFERENT_CHARS = 5
_COMMON = frozenset(
    (
        "123456789012", "1234567890123", "12345678901234", "123456789123", "1q2w3e4r5t6y", "administrator",
        "correcthorsebatterystaple", "iloveyou1234", "letmein12345", "passw0rd1234", "password1234", "password12345",
        "password123456", "passwordpassword", "qwerty123456", "qwertyuiop12", "qwertyuiop123", "qwertyuiop[]",
        "welcome12345",
    )
)  # fmt: skip
_ATTEMPTS = ((5, 60.0), (60, 3600.0))
"""How many failures are allowed in how many seconds, for an address and for a name."""
_SCRYPT = {"n": 2**15, "r": 8, "p": 1, "maxmem": 64 * 2**20}
_HIDDEN = 0o600
_MAX_SUBJECTS = 10_000


class Role(IntEnum):
    """What a person may do; each may also do what those before may."""

    VIEWER = 1
    OPERATOR = 2
    ADMIN = 3


class Account(Struct, frozen=True):
    """A person: a role, and the hash of a password."""

    name: Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._@-]{0,63}$")]
    role: str
    salt: str
    key: str


class _Accounts(Struct, frozen=True):
    accounts: list[Account] = []


class WebSession(Struct, frozen=True):
    """One signed-in browser. `id` is the hash of its cookie."""

    id: str
    name: str
    role: str
    csrf: str
    until_s: float

    @property
    def rights(self) -> Role:
        return Role[self.role.upper()]


class _Stored(Struct, frozen=True):
    sessions: list[WebSession] = []
    links: dict[str, float] = {}  # hash of a token -> until when it is valid


class TooManyAttemptsError(ConfigError):
    """Somebody guesses."""


class WebAccess:
    """Accounts, sessions and one-time tokens of a server. Used from several threads."""

    def __init__(self, directory: Path) -> None:
        self._accounts_file = directory / "accounts.json"
        self._file = directory / "sessions.json"
        self._lock = threading.Lock()
        self._stored = read_or_none(self._file, _Stored) or _Stored()
        self._failures: dict[str, deque[float]] = defaultdict(deque)

    # -- accounts --------------------------------------------------------------------------------------------------

    @property
    def accounts(self) -> list[Account]:
        return (read_or_none(self._accounts_file, _Accounts) or _Accounts()).accounts

    def set_account(self, name: str, role: str, password: str) -> None:
        """Add an account, or replace it and end its sessions."""
        if role.upper() not in Role.__members__:
            raise ConfigError(f"no role is called {role!r}; {listing(role, [one.lower() for one in Role.__members__])}")
        _check_password(name, password)
        salt = secrets.token_bytes(16)
        try:
            account = convert(
                {"name": name, "role": role.lower(), "salt": salt.hex(), "key": _key(password, salt)}, Account
            )
        except ValidationError:
            raise ConfigError(f"{name!r} cannot be the name of an account: letters, digits and . _ @ - only") from None
        self._replace_account(name, [account])

    def remove_account(self, name: str) -> None:
        """Forget an account, and end its sessions."""
        if all(one.name != name for one in self.accounts):
            raise ConfigError(f"no account is called {name[:80]!r}; /access lists them")
        self._replace_account(name, [])

    def _replace_account(self, name: str, by: list[Account]) -> None:
        others = [one for one in self.accounts if one.name != name]
        write_document(self._accounts_file, _Accounts([*others, *by]), mode=_HIDDEN)
        with self._lock:
            self._store(replace(self._stored, sessions=[one for one in self._stored.sessions if one.name != name]))

    def sign_in(self, name: str, password: str, client: str) -> str:
        """The cookie of a new session. ConfigError if name and password do not belong together."""
        found = self._checked(name, password, client)
        return self._open(found.name, found.role)

    def change_password(self, name: str, current: str, new: str, client: str) -> None:
        """Replace a password by somebody who knows it; all sessions of the account end."""
        found = self._checked(name, current, client)
        self.set_account(name, found.role, new)

    def _checked(self, name: str, password: str, client: str) -> Account:
        """The account. ConfigError if name and password do not belong together."""
        self._check_attempts(client, f"name {name}")
        found = next((one for one in self.accounts if one.name == name), None)
        salt = bytes.fromhex(found.salt) if found else b"no such account"
        possible = len(password) <= MAX_PASSWORD_CHARS
        key = _key(password if possible else "", salt)  # the same work for names that do not exist
        if found is None or not possible or not hmac.compare_digest(key, found.key):
            self._count_failure(client, f"name {name}")
            raise ConfigError("name or password is wrong")
        return found

    # -- one-time tokens -------------------------------------------------------------------------------------------

    def new_link(self) -> str:
        """A token that opens one session as owner."""
        token = secrets.token_urlsafe(32)
        with self._lock:
            self._store(replace(self._stored, links={**self._stored.links, _hash(token): time.time() + LINK_S}))
        return token

    def redeem(self, token: str, client: str) -> str:
        """The cookie of a new session. ConfigError if the token is wrong or was used."""
        self._check_attempts(client)
        with self._lock:
            links = dict(self._stored.links)
            until_s = links.pop(_hash(token), 0.0)
            if until_s >= time.time():
                self._store(replace(self._stored, links=links))
        if until_s < time.time():
            self._count_failure(client)
            raise ConfigError(
                "this link was used or is too old; make another on the page Access of a signed-in browser, or "
                "restart crescendo web, which prints one"
            )
        return self._open(OWNER, Role.ADMIN.name.lower())

    # -- sessions --------------------------------------------------------------------------------------------------

    def session(self, cookie: str) -> WebSession | None:
        """The session of a cookie; None if there is none, or not any more."""
        wanted, now_s = _hash(cookie), time.time()
        for one in self._stored.sessions:
            if hmac.compare_digest(one.id, wanted) and one.until_s > now_s:
                return one
        return None

    def sign_out(self, cookie: str) -> None:
        gone = _hash(cookie)
        with self._lock:
            self._store(replace(self._stored, sessions=[one for one in self._stored.sessions if one.id != gone]))

    def _open(self, name: str, role: str) -> str:
        cookie = secrets.token_urlsafe(32)
        session = WebSession(_hash(cookie), name, role, secrets.token_urlsafe(32), time.time() + SESSION_S)
        with self._lock:
            self._store(replace(self._stored, sessions=[*self._stored.sessions, session]))
        return cookie

    def _store(self, stored: _Stored) -> None:
        now_s = time.time()
        sessions = [one for one in stored.sessions if one.until_s > now_s]
        links = {token: until_s for token, until_s in stored.links.items() if until_s > now_s}
        self._stored = _Stored(sessions[-1000:], links)
        write_document(self._file, self._stored, mode=_HIDDEN)

    def _check_attempts(self, *subjects: str) -> None:
        now_s = time.monotonic()
        with self._lock:
            for subject in subjects:
                recent = self._failures.get(subject, deque())
                while recent and now_s - recent[0] > _ATTEMPTS[-1][1]:
                    recent.popleft()
                for most, within_s in _ATTEMPTS:
                    if sum(now_s - at_s <= within_s for at_s in recent) >= most:
                        raise TooManyAttemptsError(f"too many attempts; wait {within_s:.0f} s")

    def _count_failure(self, *subjects: str) -> None:
        with self._lock:
            if len(self._failures) > _MAX_SUBJECTS:
                self._failures.clear()
            for subject in subjects:
                self._failures[subject].append(time.monotonic())


def _check_password(name: str, password: str) -> None:
    if not MIN_PASSWORD_CHARS <= len(password) <= MAX_PASSWORD_CHARS:
        raise ConfigError(
            f"the password has {len(password)} characters; give {MIN_PASSWORD_CHARS} or more, at most "
            f"{MAX_PASSWORD_CHARS}"
        )
    folded = password.casefold()
    if folded in _COMMON or len(set(folded)) < _MIN_DIFFERENT_CHARS or name.casefold() in folded.split():
        raise ConfigError("the password is one that others guess first; several words together are harder")


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


def _key(password: str, salt: bytes) -> str:
    return hashlib.scrypt(password.encode(), salt=salt, dklen=32, **_SCRYPT).hex()
