"""Which readings answer the questions that people ask of every broker?

How deep are the queues, how much memory, how many connections, how much is unsettled, how busy is the processor?
Readings carry the names that each system's own management gives them; here is which of those names mean which. What
is listed nowhere is not drawn, but stands in the table like everything else.
"""

import re
from dataclasses import dataclass, field

BYTES, COUNT, CORES = "bytes", "count", "cores"
_BYTES = re.compile(r"bytes|memory|(^|[._/])mem(_|$)|^rss|heap|octets")
_NO_BYTES = re.compile(r"count|percent|ratio|rate$|seconds|(^|[._/])messages?")


@dataclass(frozen=True)
class Gauge:
    """One question. `metrics` names metrics, and the entities of which they mean that: one, or all below a folder."""

    id: str
    title: str
    axis: str
    unit: str
    metrics: dict[str, tuple[str, ...]] = field(hash=False)

    def shows(self, entity: str, metric: str) -> bool:
        return any(entity.startswith(of) if of.endswith("/") else entity == of for of in self.metrics.get(metric, ()))


GAUGES = (
    Gauge("depth", "Queue depth", "messages waiting", COUNT, {
        "MessageCount": ("queue/",),
        "messages": ("queue/",),
        "undeliveredCount": ("router.link/",),
        "messages/stored": ("broker",),
    }),
    Gauge("memory", "Memory", "bytes", BYTES, {
        "rss_bytes": ("process",),
        "used": ("memory/heap",),
        "mem_used": ("node/",),
        "memoryUsage": ("router/",),
        "heap/current": ("broker",),
    }),
    Gauge("connections", "Connections", "connections", COUNT, {
        "ConnectionCount": ("broker",),
        "CurrentConnectionsCount": ("broker",),
        "connectionCount": ("router/", "virtualhost/"),
        "object_totals.connections": ("overview",),
        "clients/connected": ("broker",),
        "clients": ("broker", "broker/"),
    }),
    Gauge("unsettled", "Unsettled", "messages unsettled", COUNT, {
        "DeliveringCount": ("queue/",),
        "InFlightCount": ("queue/",),
        "messages_unacknowledged": ("queue/",),
        "unacknowledgedMessages": ("queue/",),
        "unsettledCount": ("router.link/",),
    }),
    Gauge("cpu", "Processor", "cores busy", CORES, {"cpu_cores": ("process",)}),
)  # fmt: skip


def gauge_of(entity: str, metric: str) -> Gauge | None:
    return next((gauge for gauge in GAUGES if gauge.shows(entity, metric)), None)


def unit_of(entity: str, metric: str) -> str:
    """Bytes where the name says so; otherwise a plain number."""
    gauge = gauge_of(entity, metric)
    if gauge is not None:
        return gauge.unit
    name = metric.lower()
    inherited = entity.startswith("memory/") and name in {"init", "initial", "max", "committed", "used"}
    return BYTES if inherited or (_BYTES.search(name) and not _NO_BYTES.search(name)) else COUNT
