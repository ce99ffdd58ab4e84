"""What does ActiveMQ Artemis report about itself?

One Jolokia request: the JVM, the broker, every address and every queue. Reads attributes only and calls no operation,
so that an inspection changes nothing.
"""

from crescendo.inspectors.attributes import add_attributes
from crescendo.inspectors.base import Inspection, InspectionTarget
from crescendo.inspectors.sources.jolokia import Jolokia, properties_of
from crescendo.inspectors.sources.jvm import BEANS, add_jvm
from crescendo.inspectors.targets import MANAGEMENT, url_of

_DOMAIN = "org.apache.activemq.artemis"
_BEANS = BEANS | {
    "broker": f"{_DOMAIN}:broker=*",
    "addresses": f"{_DOMAIN}:broker=*,component=addresses,address=*",
    "queues": f"{_DOMAIN}:broker=*,component=addresses,address=*,subcomponent=queues,routing-type=*,queue=*",
}
# Lists of names, whole tables as text, and times: long or always changing, and available elsewhere as numbers.
_SKIPPED = ("AsJSON", "Names", "Roles", "RoleInfo", "ObjectName", "Acceptors", "Connectors", "Uptime", "Status")


class ArtemisInspector:
    """Inspects one broker."""

    def __init__(self, target: InspectionTarget) -> None:
        self._jolokia = Jolokia(url_of(target, "artemis", (MANAGEMENT,), ("http", "https")), "/console/jolokia")

    def inspect(self) -> Inspection:
        inspection = Inspection()
        found = self._jolokia.read(_BEANS, inspection)
        add_jvm(inspection, found)
        for kind, key in (("broker", None), ("addresses", "address"), ("queues", "queue")):
            for bean, attributes in found.get(kind, {}).items():
                entity = "broker" if key is None else f"{key}/{properties_of(bean).get(key, '')}"
                add_attributes(
                    inspection,
                    entity,
                    {name: value for name, value in attributes.items() if not name.endswith(_SKIPPED)},
                )
        return inspection

    def close(self) -> None:
        self._jolokia.close()
