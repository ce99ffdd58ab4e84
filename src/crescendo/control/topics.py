"""Where is a note published?

The topic names of the Maestro protocol, under `/mpt/`. Names only: QoS and meaning are defined elsewhere.
"""

from crescendo.model.errors import ConfigError

PEERS = "/mpt/peer"
"""Requests to every peer."""

REPLIES = "/mpt/maestro"
"""Answers of the peers."""

NOTIFICATIONS = "/mpt/notifications"
"""Unsolicited notes of peers: joining, statistics, success, failure, and last wills."""


def peer(peer_id: str) -> str:
    """Requests to one peer."""
    if not peer_id or any(character in peer_id for character in "/+#\0"):
        raise ConfigError(f"{peer_id!r} is not a valid peer id: it becomes a level of an MQTT topic, so no / + or #")
    return f"{PEERS}/by-id/{peer_id}"
