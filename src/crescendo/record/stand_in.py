"""Did a relay stand in for a router in a run, and what do readers have to know then?

No package registry carries an AMQP router, so Crescendo has a small one. Every page that shows its figures says so,
from the facts that the manifest keeps of the system. Says nothing about runs of the loopback relay, which nobody takes
for a router.
"""

from collections.abc import Mapping, Sequence
from typing import Any

RELAY = "relay"
"""The program that stands in."""

SENTENCE = (
    "A relay is a stand-in for a router: it routes by the same rules, but its figures say nothing about qpid-dispatch "
    "or skupper-router."
)


def stand_ins_of(system: Mapping[str, Any]) -> int:
    """How many relays the measured system had in place of routers, from the manifest's facts of it."""
    if system.get("kind") == RELAY:
        return 1
    found = system.get("stand_ins")
    return found if isinstance(found, int) else 0


def stand_in_remarks(stand_ins: Sequence[int]) -> list[str]:
    """The remark of a page about several runs, from the number of relays in each of them; none if there are none."""
    relayed = sum(count > 0 for count in stand_ins)
    if not relayed:
        return []
    which = "Every run" if relayed == len(stand_ins) else f"{relayed} of {len(stand_ins)} runs"
    return [f"{which} used relays. {SENTENCE}"]
