"""Where is a note published?

The topic names of the Maestro protocol, under `/mpt/SCOPE/`: a run, or a lab. Names only: QoS and meaning are defined
elsewhere.
"""

from dataclasses import dataclass

from crescendo.model.errors import ConfigError

ROOT = "/mpt"
_MAX_CHARS = 200


@dataclass(frozen=True)
class Topics:
    """The topics of one scope. `+` as the scope subscribes to all of them."""

    scope: str

    @property
    def peers(self) -> str:
        """Requests to every peer."""
        return f"{ROOT}/{self.scope}/peer"

    @property
    def replies(self) -> str:
        """Answers of the peers."""
        return f"{ROOT}/{self.scope}/maestro"

    @property
    def notifications(self) -> str:
        """Unsolicited notes of peers: joining, statistics, success, failure, and last wills."""
        return f"{ROOT}/{self.scope}/notifications"

    def peer(self, peer_id: str) -> str:
        """Requests to one peer."""
        return f"{self.peers}/by-id/{_level('peer id', peer_id)}"

    def role(self, role: str) -> str:
        """Requests to every peer of a role."""
        return f"{self.peers}/by-role/{_level('role', role)}"

    def group(self, name: str) -> str:
        """Requests to every peer that joined this group."""
        return f"{self.peers}/by-group/{_level('group', name)}"


def scope_of_topic(topic: str) -> str:
    """The name of the scope that a topic belongs to; empty if it is none of ours."""
    levels = topic.split("/", 3)
    return levels[2] if len(levels) == 4 and levels[0] == "" and levels[1] == ROOT[1:] else ""


def _level(what: str, name: str) -> str:
    # A broker may disconnect a client that subscribes to a topic with a control character.
    if not name or len(name) > _MAX_CHARS or not name.isprintable() or any(character in name for character in "/+#"):
        raise ConfigError(
            f"{name[:_MAX_CHARS]!r} is not a valid {what}: it becomes a level of an MQTT topic, so no / + or #, no "
            f"control character, and at most {_MAX_CHARS} characters"
        )
    return name
