"""Small networks for tests."""

from pathlib import Path
from typing import Any

import yaml

from crescendo.topology.generate import Network, generate
from crescendo.topology.topology_file import Topology, load_topology

SAMPLES = Path(__file__).parent / "samples"


def write_topology(folder: Path, document: dict[str, Any], inventory: str | None = None) -> Path:
    if inventory is not None:
        (folder / "inventory").write_text(inventory)
        document = {"hostfile": "inventory", **document}
    path = folder / "topology.yml"
    path.write_text(yaml.safe_dump(document))
    return path


def topology_of(folder: Path, document: dict[str, Any], inventory: str | None = None) -> Topology:
    return load_topology(write_topology(folder, document, inventory))


def network_of(folder: Path, document: dict[str, Any], inventory: str | None = None) -> Network:
    return generate(topology_of(folder, document, inventory))


def router(name: str, **more: Any) -> dict[str, Any]:
    return {"id": name, "type": "router", **more}


def broker(name: str, **more: Any) -> dict[str, Any]:
    return {"id": name, "type": "broker", **more}


def link(source: str, target: str, **more: Any) -> dict[str, Any]:
    return {"source": source, "target": target, **more}
