"""How is text escaped in a STOMP header, in each version of the protocol?

1.0 escapes nothing, 1.1 escapes backslash, line feed and colon, 1.2 also the carriage return; CONNECT and CONNECTED
are never escaped. Text that a version cannot escape is refused here: sent as it is, it would become another header.
"""

import re
from enum import StrEnum

from crescendo.model.errors import ConfigError, PeerError


class Version(StrEnum):
    """The versions, as the `version` header spells them."""

    V1_0 = "1.0"
    V1_1 = "1.1"
    V1_2 = "1.2"


_ESCAPES: dict[Version, dict[str, str]] = {
    Version.V1_0: {},
    Version.V1_1: {"\\": "\\\\", "\n": "\\n", ":": "\\c"},
    Version.V1_2: {"\\": "\\\\", "\n": "\\n", ":": "\\c", "\r": "\\r"},
}
_TABLES = {version: str.maketrans(escapes) for version, escapes in _ESCAPES.items()}
_MEANINGS = {version: {code: char for char, code in escapes.items()} for version, escapes in _ESCAPES.items()}
_UNWRITABLE = re.compile(r"[\n\r\0]")
_SEQUENCE = re.compile(r"\\.?", re.DOTALL)


def escape(text: str, version: Version) -> str:
    """The text as a header of this version spells it."""
    escaped = text.translate(_TABLES[version])
    if _UNWRITABLE.search(escaped):
        raise ConfigError(f"STOMP {version} cannot carry {text!r} in a header")
    return escaped


def escape_name(text: str, version: Version) -> str:
    """The same for the name of a header, which ends at the first colon."""
    escaped = escape(text, version)
    if not text or ":" in escaped:
        raise ConfigError(f"STOMP {version} cannot name a header {text!r}")
    return escaped


def unescape(text: str, version: Version) -> str:
    """The text that a header of this version encodes."""
    meanings = _MEANINGS[version]
    if not meanings or "\\" not in text:
        return text

    def meaning(found: re.Match[str]) -> str:
        try:
            return meanings[found[0]]
        except KeyError:
            raise PeerError(f"{found[0]!r} is not an escape sequence of STOMP {version}") from None

    return _SEQUENCE.sub(meaning, text)
