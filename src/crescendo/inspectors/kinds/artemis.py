"""What does ActiveMQ Artemis say about itself?

One Jolokia request: the virtual machine, the broker, every address and every queue. It reads attributes only and calls
no operation, so that looking changes nothing.
"""

from crescendo.inspectors.attributes import take
from crescendo.inspectors.base import Inspection, InspectionTarget
from crescendo.inspectors.sources.jolokia import Jolokia, properties_of
from crescendo.inspectors.sources.jvm import BEANS, take_jvm
from crescendo.inspectors.targets import MANAGEMENT, url_of

_DOMAIN = "org.apache.activemq.artemis"
_BEANS = BEANS | {
    "broker": f"{_DOMAIN}:broker=*",
    "addresses": f"{_DOMAIN}:broker=*,component=addresses,address=*",
    "queues": f"{_DOMAIN}:broker=*,component=addresses,address=*,subcomponent=queues,routing-type=*,queue=*",
}
# Lists of names, renderings of whole tables and of the time: long or ever changing, and said elsewhere in numbers.
_LISTS = ("AsJSON", "Names", "Roles", "RoleInfo", "ObjectName", "Acceptors", "Connectors", "Uptime", "Status")


class ArtemisInspector:
    """Looks at one broker."""

    def __init__(self, target: InspectionTarget) -> None:
        self._jolokia = Jolokia(url_of(target, "artemis", (MANAGEMENT,), ("http", "https")), "/console/jolokia")

    def inspect(self) -> Inspection:
        look = Inspection()
        found = self._jolokia.read(_BEANS, look)
        take_jvm(look, found)
        for kind, key in (("broker", None), ("addresses", "address"), ("queues", "queue")):
            for bean, attributes in found.get(kind, {}).items():
                entity = "broker" if key is None else f"{key}/{properties_of(bean).get(key, '')}"
                take(look, entity, {name: value for name, value in attributes.items() if not name.endswith(_LISTS)})
        return look

    def close(self) -> None:
        self._jolokia.close()
