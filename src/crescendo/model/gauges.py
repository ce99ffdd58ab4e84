"""Which readings are drawn as charts?

Queue depth, memory, connections, unsettled messages and CPU are interesting for every broker. Readings have the names
that each system's own management uses; this module maps those names to gauges, and knows which readings tell nothing:
clocks, and the queues that every broker keeps for itself while they are empty. Those come last in the table, and like
all readings that are not gauges they are not drawn.
"""

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, field

BYTES, COUNT, CORES = "bytes", "count", "cores"
_BYTES = re.compile(r"bytes|memory|(^|[._/])mem(_|$)|^rss|heap|octets")
_CLOCK = re.compile(r"time(millis|stamp)?$|millis$|uptime|(^|[._/])(cpu_)?seconds$", re.IGNORECASE)
_OWN_QUEUE = re.compile(
    r"(^|[^a-z])(dlq|dlx|expiry|expiryqueue|dead.?letters?|notifications)([^a-z]|$)|\$sys", re.IGNORECASE
)
_NO_BYTES = re.compile(r"count|percent|ratio|rate$|seconds|(^|[._/])messages?")


@dataclass(frozen=True)
class Gauge:
    """One chart. `metrics` maps metric names to the entities they apply to: an entity, or all below a prefix."""

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


def is_clock(metric: str) -> bool:
    """Whether it only says how much time has passed."""
    return _CLOCK.search(metric) is not None


def is_idle(entity: str, peak: float | None) -> bool:
    """Whether it belongs to a queue that the broker keeps for itself, and stayed empty."""
    return not peak and _OWN_QUEUE.search(entity) is not None


def gauge_of(entity: str, metric: str) -> Gauge | None:
    return next((gauge for gauge in GAUGES if gauge.shows(entity, metric)), None)


def unit_of(entity: str, metric: str) -> str:
    """Bytes if the name says so; otherwise a plain number."""
    gauge = gauge_of(entity, metric)
    if gauge is not None:
        return gauge.unit
    name = metric.lower()
    inherited = entity.startswith("memory/") and name in {"init", "initial", "max", "committed", "used"}
    return BYTES if inherited or (_BYTES.search(name) and not _NO_BYTES.search(name)) else COUNT


def highest_readings(readings: Iterable[tuple[str, str, float]]) -> dict[str, float]:
    """gauge -> its highest reading, of (entity, metric, value); without gauges that nobody read."""
    found: dict[str, float] = {}
    for entity, metric, value in readings:
        gauge = gauge_of(entity, metric)
        if gauge is not None and math.isfinite(value):
            found[gauge.id] = max(value, found.get(gauge.id, value))
    return found
