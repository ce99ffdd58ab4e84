"""What do MLMQ's brokers report about themselves?

Their metrics page: clients, requests by kind and outcome, how many wait for a worker, a message or a slow socket,
workers and connections in use, shed requests, statements, time in the database and in every tier. All brokers of a
system are inspected; if one does not answer the inspection fails, because partial sums would be wrong.
"""

import math
import re
from collections.abc import Iterator

from crescendo.inspectors.base import Inspection, InspectionTarget, Reading
from crescendo.inspectors.sources.http import Http
from crescendo.inspectors.targets import MANAGEMENT, url_of
from crescendo.model.errors import PeerError

BROKER = "broker"
_PAGE = "/metrics"
_PREFIX = "crescendo_mlmq_"
_END = "# EOF"
_SAMPLE = re.compile(r"(?P<name>[a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(?P<labels>[^}]*)\})? (?P<value>\S+)(?: \S+)?")
_LABEL = re.compile(r'[a-zA-Z_][a-zA-Z0-9_]*="((?:[^"\\]|\\.)*)"')


class MlmqInspector:
    """Inspects all brokers of one system."""

    def __init__(self, target: InspectionTarget) -> None:
        first = url_of(target, "mlmq", (MANAGEMENT,), ("http",))
        further = [target.endpoints[name] for name in target.endpoints if name.startswith(f"{MANAGEMENT}-")]
        self._brokers = [Http(url) for url in (first, *further)]

    def inspect(self) -> Inspection:
        inspection = Inspection()
        for number, broker in enumerate(self._brokers, 1):
            entity = BROKER if len(self._brokers) == 1 else f"{BROKER}/{number}"
            # The URL may be given with or without the path of the page.
            page = broker.text(broker.path.removesuffix(_PAGE) + _PAGE)
            inspection.readings.extend(_readings(entity, page))
        return inspection

    def close(self) -> None:
        for broker in self._brokers:
            broker.close()


def _readings(broker: str, page: str) -> Iterator[Reading]:
    """One per sample: its label values become part of the entity, its name without our prefix is the metric."""
    lines = page.splitlines()
    if not lines or lines[-1] != _END:
        raise PeerError(f"the metrics of {broker} are incomplete; is this MLMQ?")
    found = 0
    for line in lines:
        sample = None if line.startswith("#") else _SAMPLE.fullmatch(line)
        if sample is None or not sample["name"].startswith(_PREFIX):
            continue
        value = _number(sample["value"])
        if value is not None:
            entity = "/".join((broker, *_LABEL.findall(sample["labels"] or "")))
            yield Reading(entity, sample["name"].removeprefix(_PREFIX), value)
            found += 1
    if not found:
        raise PeerError(f"the metrics of {broker} contain no MLMQ metric; is this MLMQ?")


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None
