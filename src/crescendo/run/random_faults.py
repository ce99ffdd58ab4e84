"""Does a system keep what it acknowledged, whatever happens to it?

Random timelines of faults against a durable workload, run after run, until the time is over. A run in which an
acknowledged message is lost is a finding: its timeline is shortened, by more runs, to what still loses one, and saved
as an experiment file. Judges nothing else: how long an outage lasts is the system's own affair here.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from crescendo.model.errors import ConfigError
from crescendo.model.experiment import Experiment
from crescendo.model.experiment_file import experiment_from, to_document
from crescendo.model.fault_timelines import Timeline, length_ns, random_timeline, shrunk
from crescendo.model.protocols import MLMQ, MQTT, known_protocols
from crescendo.model.units import Duration
from crescendo.record.documents import write_atomically
from crescendo.systems.registry import system_of
from crescendo.systems.settings import protocols_of

RATE = 200.0
MOST_FAULTS = 5
DRAIN = Duration(30 * 10**9)
_AGAIN = 2  # a loss may need luck: a timeline counts as harmless only if it loses nothing so often

Lost = Callable[[Experiment], int | None]
"""Run an experiment and return how many acknowledged messages it lost; None if nobody knows."""


@dataclass
class Torture:
    """What a torture found so far."""

    system: str
    seed: int
    tries: int = 0
    unknown: int = 0  # tries that could not be judged
    failing: Timeline = ()  # as it was drawn
    shortest: Timeline = ()
    lost: int = 0
    saved: Path | None = None
    notes: list[str] = field(default_factory=list)


def torture(system: str, *, seed: int, lasts_s: float, out: Path, lost: Lost, report: Callable[[str], None]) -> Torture:
    """Try timelines until one loses an acknowledged message or the time is over; at least one is tried."""
    found = Torture(system, seed)
    ends_s = time.monotonic() + lasts_s
    while not found.failing and (found.tries == 0 or time.monotonic() < ends_s):
        timeline = random_timeline(seed, found.tries, MOST_FAULTS)
        count = lost(tortured(system, timeline, seed))
        found.tries += 1
        if count is None:
            found.unknown += 1
        elif count:
            found.failing, found.lost = timeline, count
        report(f"try {found.tries}: {_described(timeline)}: {_outcome(count)}")
    if found.failing:
        report("shortening the timeline")
        found.shortest = shrunk(found.failing, lambda part: _loses(system, part, seed, lost, report))
        found.saved = _save(out, system, seed, found.shortest)
    return found


def tortured(system: str, timeline: Timeline, seed: int) -> Experiment:
    """The durable workload of a kind of system, with these faults."""
    protocol = _protocol(system)
    address = "topic://torture?subscription=torture" if protocol == MQTT.name else "queue://torture?durable=yes"
    if protocol == MLMQ.name:
        address = "queue://torture"  # everything is durable there
    document: dict[str, Any] = {
        "name": f"torture-{system}",
        "system": {"kind": system},
        "workload": {"protocol": protocol, "address": [address], "rate": RATE, "settle": "at-least-once"},
        "phases": {"warmup": "1s", "measure": str(Duration(length_ns(timeline))), "drain": str(DRAIN)},
        "checks": {"lost_acknowledged": 0},
        "accept_drift": True,
        "seed": seed,
        "faults": [
            {"at": fault.at, "do": fault.do, **({"for": str(fault.lasts)} if fault.lasts else {})} for fault in timeline
        ],
    }
    return experiment_from(document)


def _protocol(system: str) -> str:
    """The first protocol that the system speaks; all of them can be durable."""
    endpoints = protocols_of(system_of(system))
    for name, protocol in known_protocols().items():
        if protocol.endpoint in endpoints:
            return name
    raise ConfigError(f"{system} speaks no protocol of ours")


def _loses(system: str, part: Timeline, seed: int, lost: Lost, report: Callable[[str], None]) -> bool:
    for _ in range(_AGAIN):
        count = lost(tortured(system, part, seed))
        report(f"without the others: {_described(part)}: {_outcome(count)}")
        if count:
            return True
    return False


def _described(timeline: Timeline) -> str:
    return ", ".join(f"{fault.do} at {fault.at.offset}" for fault in timeline)


def _outcome(count: int | None) -> str:
    if count is None:
        return "cannot be judged"
    return f"{count:,} acknowledged messages lost" if count else "nothing lost"


def _save(out: Path, system: str, seed: int, timeline: Timeline) -> Path:
    path = out / f"torture-{system}-{seed}.yml"
    text = yaml.safe_dump(to_document(tortured(system, timeline, seed)), sort_keys=False, allow_unicode=True)
    write_atomically(path, text.encode())
    return path
