"""Who may connect to the nodes, and where do their files lie?

One user for the whole network, or anonymous access where the user asked for it. Secrets go into files, never into
arguments.
"""

from typing import Any

from msgspec import Struct

from crescendo.model.errors import ConfigError
from crescendo.model.suggestions import listing
from crescendo.topology.generate import CLUSTER, MANAGEMENT, NORMAL, Variables
from crescendo.topology.listener_ports import port_of


class Access(Struct, frozen=True):
    """The user of all brokers; without a user, they accept every client. `role` is the role of this user in Artemis."""

    user: str = ""
    password: str = ""
    role: str = "amq"
    directory: str = ""  # where the files of a node will lie; empty: the usual place of its program
    home: str = ""  # where its program is installed, if that is known


class NodeVariables(Struct, frozen=True):
    """The variables of one broker, with names for what every broker needs."""

    id: str
    values: Variables

    @property
    def settings(self) -> dict[str, Any]:
        merged: dict[str, Any] = {}
        for entry in self.values.get("broker", ()):
            merged |= entry
        return merged

    @property
    def persistence(self) -> bool:
        return bool(self.settings.get("persistence", True))

    @property
    def queues(self) -> list[str]:
        names = []
        for entry in self.values.get("queue", ()):
            name = entry.get("name")
            if not isinstance(name, str) or set(entry) - {"name"}:
                raise ConfigError(
                    f"node {self.id}: a queue has a name and nothing else, for example queue: [{{name: orders}}]"
                )
            names.append(name)
        return list(dict.fromkeys(names))

    @property
    def connectors(self) -> list[dict[str, Any]]:
        """Each with a label of its own: two links may lead to the same broker."""
        found: list[dict[str, Any]] = []
        for entry in self.values.get("connector", ()):
            number = 1 + sum(other.get("name") == entry.get("name") for other in found)
            label = str(entry.get("name")) if number == 1 else f"{entry.get('name')}-{number}"
            found.append({**entry, "label": label})
        return found

    def listener(self, role: str = NORMAL) -> dict[str, Any]:
        for entry in self.values.get("listener", ()):
            if str(entry.get("role", NORMAL)) == role and port_of(entry) is not None:
                return {"host": entry.get("host", "127.0.0.1"), "port": port_of(entry)}
        raise ConfigError(f"node {self.id}: it has no listener with the role {role}; write one, or remove def_list: no")

    @property
    def management(self) -> dict[str, Any]:
        return self.listener(MANAGEMENT)

    def check_sections(self, *known: str) -> None:
        """Refuse a section that the program has no use for: nothing that the user wrote is ignored."""
        usual = {"machine", "broker", "listener", "connector", "queue", *known}
        for name in self.values:
            if name not in usual:
                program, sections = self.settings["program"], sorted(usual - {"machine"})
                raise ConfigError(f"node {self.id}: {program} has no section {name}; {listing(name, sections)}")
        own = {"persistence", CLUSTER} if self.settings["program"] == "artemis" else {"persistence"}
        for name in set(self.settings) - {"id", "program"} - own:
            raise ConfigError(f"node {self.id}: broker.{name} is not a setting; {listing(name, sorted(own))}")


def refuse_via(node: NodeVariables, connector: dict[str, Any], known: tuple[str, ...]) -> ConfigError:
    program = node.settings["program"]
    return ConfigError(
        f"node {node.id}: {program} cannot be joined to {connector.get('name')} via {connector.get('via')!r}; "
        f"{listing(connector.get('via'), known)}"
    )
