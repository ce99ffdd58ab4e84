"""What do Maestro's properties files contain for a run?

Java properties: `test.properties` describes the load of one peer, `inspector.properties` the inspected system. Values
come from the manifest, which holds no secrets; user and password are still removed from URLs. Keys without a known
value are omitted: Maestro's readers do not require them.
"""

from pathlib import Path
from typing import Any

from crescendo.exporters.export_window import ExportWindow
from crescendo.exporters.maestro.readings import Attributes
from crescendo.model.errors import ConfigError
from crescendo.model.experiment import Experiment
from crescendo.model.urls import parse_url
from crescendo.record.manifest import Manifest, PeerRecord
from crescendo.record.timeline import SECOND_NS

Properties = dict[str, Any]

_PROTOCOLS = {"amqp10": "AMQP"}
_ESCAPED = str.maketrans({"\\": "\\\\", ":": "\\:", "=": "\\=", "#": "\\#", "!": "\\!", "\n": "\\n", "\r": "\\r"})


def write_properties(path: Path, properties: Properties) -> None:
    lines = ["#crescendo"]
    for key, value in sorted(properties.items()):
        if value not in {None, ""}:
            text = str(value).translate(_ESCAPED)
            lines.append(f"{key}={text.encode('ascii', 'backslashreplace').decode('ascii')}")
    path.write_text("\n".join(lines) + "\n", encoding="ascii")


def load_properties(manifest: Manifest, experiment: Experiment, peer: PeerRecord, window: ExportWindow) -> Properties:
    """The load of one peer. If it serves several groups, the first one stands for all."""
    if not experiment.workload:
        raise ConfigError("maestro has only senders and receivers, and this run has only MLMQ clients")
    mine = [item for item in manifest.connections if item.peer == peer.id and item.role == peer.role]
    groups = {group.name: group for group in experiment.workload}
    group = groups.get(mine[0].group if mine else "", experiment.workload[0])
    return {
        "apiName": "crescendo",
        "apiVersion": manifest.versions.get("crescendo"),
        "brokerUri": _uri(experiment, group.address, group.destination),
        "duration": round((window.end_ns - window.start_ns) / SECOND_NS),
        "durationType": "time",
        "limitDestinations": len({item.destination for item in mine}) or 1,
        "messageSize": int(group.size),
        "parallelCount": len(mine),
        "protocol": _PROTOCOLS.get(group.protocol, group.protocol.upper()),
        "rate": round(group.rate),
        "variableSize": 0,
    }


def inspector_properties(
    manifest: Manifest, texts: dict[str, Attributes], numbers: dict[str, Attributes]
) -> Properties:
    """The inspected system, by its own data if available, otherwise by those of the host that ran it."""
    host, system = manifest.host, manifest.system
    os_texts, os_numbers = texts.get("os", {}), numbers.get("os", {})
    name, _, release = str(host.get("system", "")).partition(" ")
    return {
        "jvmName": texts.get("jvm", {}).get("VmName"),
        "jvmVersion": system.get("java_version"),
        "operatingSystemArch": os_texts.get("Arch") or host.get("machine"),
        "operatingSystemName": os_texts.get("Name") or name,
        "operatingSystemVersion": os_texts.get("Version") or release,
        "productName": system.get("kind"),
        "productVersion": system.get("version"),
        "systemCpuCount": _whole(os_numbers.get("AvailableProcessors")) or host.get("cores"),
        "systemMemory": _whole(os_numbers.get("TotalPhysicalMemorySize")) or host.get("memory_bytes"),
        "systemSwap": _whole(os_numbers.get("TotalSwapSpaceSize")),
    }


def _whole(value: float | str | None) -> int | None:
    return int(value) if isinstance(value, float) else None


def _uri(experiment: Experiment, address: str, destination: str) -> str:
    if experiment.system.url is None:
        return address
    url = parse_url(experiment.system.url)
    return f"{url.scheme}://{url.server}/{destination}"
