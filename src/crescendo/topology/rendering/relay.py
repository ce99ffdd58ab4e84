"""What is in the configuration file of a relay?

The variables of the node in JSON. The relay's own reader checks them, so that nothing in the file would be ignored.
"""

import json

from crescendo.systems.relay.router_config import router_config
from crescendo.topology.generate import ROUTE_CONTAINER, Variables
from crescendo.topology.graph import Entry
from crescendo.topology.rendering.access import Access

RELAY_FILE = "relay.json"


def relay_files(name: str, variables: Variables, access: Access) -> dict[str, str]:
    values = {key: entries for key, entries in variables.items() if key != "machine"}
    if access.user:
        values["connector"] = [_with_user(entry, access) for entry in values.get("connector", ())]
    router_config(values, f"node {name}")
    return {RELAY_FILE: json.dumps(values, indent=2) + "\n"}


def _with_user(connector: Entry, access: Access) -> Entry:
    """The connector to a broker signs in as the user of the network."""
    if connector.get("role") != ROUTE_CONTAINER or "saslUsername" in connector:
        return connector
    return {**connector, "saslMechanisms": "PLAIN", "saslUsername": access.user, "saslPassword": access.password}
