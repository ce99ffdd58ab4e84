"""How do other programs learn that a run has its verdict?

JSON is posted to one address after every run of the queue. It is kept in a file of mode 0600, because such addresses
often are secrets. The run process does that, so it happens whether or not the server lives. A receiver that
fails is tried again twice and then reported; it never changes the outcome of a run. Follows no redirect.
"""

import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx

from crescendo.model.errors import ConfigError, PeerError
from crescendo.record.documents import write_atomically

FILE = "webhook"
_TRIES, _PAUSE_S, _TIMEOUT_S = 3, 1.0, 5.0
_MAX_CHARS = 2000


def check_address(address: str) -> str:
    """The address, or a ConfigError that says what is wrong with it."""
    text = address.strip()
    try:
        parts = urlsplit(text)
        known = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        known = False
    if not known or len(text) > _MAX_CHARS or any(mark.isspace() or not mark.isprintable() for mark in text):
        raise ConfigError("webhook: give an address such as https://chat.example.org/hooks/…")
    return text


class Webhook:
    """The address of one server; none until somebody sets it."""

    def __init__(self, own: Path) -> None:
        self._file = own / FILE

    @property
    def address(self) -> str:
        try:
            return self._file.read_text().strip()
        except OSError:
            return ""

    @property
    def host(self) -> str:
        """What may be shown: the rest of the address may be a secret."""
        return urlsplit(self.address).hostname or ""

    def set(self, address: str) -> None:
        """Try another address and keep it if it answers; an empty one ends it."""
        text = check_address(address) if address.strip() else ""
        if text and (
            problem := _post(text, {"state": "test", "text": "Crescendo notifies this address when runs end."})
        ):
            raise PeerError(f"webhook: {urlsplit(text).hostname} did not accept a test: {problem}; it was not kept")
        write_atomically(self._file, f"{text}\n".encode(), mode=0o600)

    def notify(self, document: dict[str, Any]) -> bool:
        """Post a document. False without an address; PeerError if it was not accepted."""
        address = self.address
        if not address:
            return False
        for attempt in range(_TRIES):
            problem = _post(address, document)
            if not problem:
                return True
            if attempt + 1 < _TRIES:
                time.sleep(_PAUSE_S * 2**attempt)
        raise PeerError(f"webhook: {self.host} did not accept it: {problem}")


def _post(address: str, document: dict[str, Any]) -> str:
    """Why it was not accepted; empty if it was."""
    try:
        answer = httpx.post(
            address, json=document, timeout=_TIMEOUT_S, trust_env=False, follow_redirects=False,
            headers={"user-agent": "crescendo"},
        )  # fmt: skip
    except httpx.HTTPError as err:
        return type(err).__name__  # its text may contain the address
    return "" if answer.is_success else f"status {answer.status_code}"
