"""What do two STOMP peers negotiate before the first message?

The version (the highest that both support) and how often each sends a heart-beat. Pure arithmetic over the headers of
CONNECT and CONNECTED; it never waits.
"""

from collections.abc import Iterable
from typing import NamedTuple

from crescendo.model.errors import ConfigError, PeerError
from crescendo.wire.stomp.escaping import Version

VERSIONS = (Version.V1_0, Version.V1_1, Version.V1_2)
MAX_HEARTBEAT_MS = 2**31 - 1


class Heartbeats(NamedTuple):
    """How often one side can send heart-beats, and how often it wants to receive them; 0 is never."""

    can_send_ms: int = 0
    wants_ms: int = 0

    def __str__(self) -> str:
        return f"{self.can_send_ms},{self.wants_ms}"


class Agreement(NamedTuple):
    """The negotiated settings, from our point of view."""

    version: Version
    send_every_ms: int
    expect_every_ms: int


def heartbeats_of(text: str | None) -> Heartbeats:
    """Parse a heart-beat header; without one neither side sends heart-beats."""
    if text is None:
        return Heartbeats()
    numbers = [part.strip(" ") for part in text.split(",")]
    if len(numbers) != 2 or not all(part.isascii() and part.isdigit() and len(part) <= 10 for part in numbers):
        raise PeerError(f"{text[:40]!r} is not a valid heart-beat header")
    return Heartbeats(*(min(int(part), MAX_HEARTBEAT_MS) for part in numbers))


def agreed(version: Version, ours: Heartbeats, theirs: Heartbeats) -> Agreement:
    """Each direction uses the slower of the two intervals, or none if either side is 0."""
    if version is Version.V1_0:
        return Agreement(version, 0, 0)
    return Agreement(version, _slower(ours.can_send_ms, theirs.wants_ms), _slower(theirs.can_send_ms, ours.wants_ms))


def _slower(can_ms: int, wants_ms: int) -> int:
    return max(can_ms, wants_ms) if can_ms and wants_ms else 0


def accept_version(offered: Iterable[Version]) -> str | None:
    """The accept-version header of a client; None if it offers only 1.0, which has no such header."""
    versions = sorted(offered)
    if not versions:
        raise ConfigError("a STOMP client must offer at least one version")
    return None if versions == [Version.V1_0] else ",".join(versions)


def version_from_server(text: str | None, offered: Iterable[Version]) -> Version:
    """As a client: the version that the server chose. A server that states none uses 1.0."""
    chosen = Version.V1_0.value if text is None else text.strip(" ")
    for version in offered:
        if version == chosen:
            return version
    raise PeerError(f"the system chose STOMP {chosen[:20]!r}, which was not offered")


def choose_version(accepts: str | None, known: Iterable[Version] = VERSIONS) -> Version | None:
    """As a server: the highest version that both sides support, or None."""
    asked = {Version.V1_0.value} if accepts is None else {part.strip(" ") for part in accepts.split(",")}
    return max((version for version in known if version.value in asked), default=None)
