"""What does a Java virtual machine report about itself, whichever collector it runs?

Heap and non-heap, the memory areas under the same name for every collector, the operating system's load, descriptors,
memory and swap, threads and collections. Unknown areas keep the name that the JVM gives them.
"""

import re
from collections.abc import Mapping

from crescendo.inspectors.attributes import add_attributes, number_of
from crescendo.inspectors.base import Inspection, Reading
from crescendo.inspectors.sources.jolokia import Attributes, properties_of

BEANS = {
    "memory": "java.lang:type=Memory",
    "pools": "java.lang:type=MemoryPool,name=*",
    "os": "java.lang:type=OperatingSystem",
    "collectors": "java.lang:type=GarbageCollector,name=*",
    "threads": "java.lang:type=Threading",
}
_AREAS = (
    ("eden", re.compile(r"\beden\b", re.IGNORECASE)),
    ("survivor", re.compile(r"\bsurvivor\b", re.IGNORECASE)),
    ("tenured", re.compile(r"\b(tenured|old) gen", re.IGNORECASE)),
    ("metaspace", re.compile(r"^metaspace$|\bperm gen\b", re.IGNORECASE)),
)
_THREADS = ("ThreadCount", "PeakThreadCount", "DaemonThreadCount", "TotalStartedThreadCount")


def add_jvm(inspection: Inspection, found: Mapping[str, Mapping[str, Attributes]]) -> None:
    """Add the readings of the beans of `BEANS`. Any of them may be missing."""
    for memory in found.get("memory", {}).values():
        for attribute, area in (("HeapMemoryUsage", "heap"), ("NonHeapMemoryUsage", "non-heap")):
            _add_usage(inspection, area, memory.get(attribute))
    for bean, pool in found.get("pools", {}).items():
        area = area_of(properties_of(bean).get("name", ""))
        _add_usage(inspection, area, pool.get("Usage"))
    for system in found.get("os", {}).values():
        add_attributes(inspection, "os", {name: value for name, value in system.items() if name != "ObjectName"})
        opened, limit = (number_of(system.get(f"{name}FileDescriptorCount")) for name in ("Open", "Max"))
        if opened is not None and limit is not None:
            inspection.readings.append(Reading("os", "FreeFileDescriptorCount", limit - opened))
    for bean, collector in found.get("collectors", {}).items():
        entity = f"collector/{properties_of(bean).get('name', '')}"
        add_attributes(
            inspection, entity, {name: collector.get(name) for name in ("CollectionCount", "CollectionTime")}
        )
    for threads in found.get("threads", {}).values():
        add_attributes(inspection, "threads", {name: threads.get(name) for name in _THREADS})


def area_of(pool: str) -> str:
    """One name for the same area of every collector: G1 Old Gen, PS Old Gen and Tenured Gen are tenured."""
    for area, pattern in _AREAS:
        if pattern.search(pool):
            return area
    return re.sub(r"[^a-z0-9]+", "-", pool.lower()).strip("-")


def _add_usage(inspection: Inspection, area: str, usage: object) -> None:
    if isinstance(usage, dict):
        add_attributes(inspection, f"memory/{area}", usage)
