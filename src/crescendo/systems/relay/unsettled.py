"""Which deliveries has a receiver settled?

Unsettled deliveries are batches in the order of sending, each with the id of its first; what a receiver settles is a
stretch of ids, which may begin and end anywhere in them.
"""

from collections import deque

from crescendo.systems.relay.links import Octets

_SERIAL = 0xFFFF_FFFF


def take_settled(unsettled: deque[tuple[int, Octets]], first: int, last: int) -> list[Octets]:
    """Take the deliveries first to last out of what is unsettled. Ids are serial numbers: they begin again at 2^32."""
    taken: list[Octets] = []
    kept: list[tuple[int, Octets]] = []
    while unsettled and _ahead(last, first) >= 0:
        start, bodies = unsettled.popleft()
        low, high = max(_ahead(first, start), 0), min(_ahead(last, start) + 1, len(bodies))
        if high <= 0:
            unsettled.appendleft((start, bodies))  # it and all that follow lie behind what was settled
            break
        if low > 0:
            kept.append((start, bodies[:low]))
        taken.append(bodies[low:high])
        if high < len(bodies):
            unsettled.appendleft(((start + high) & _SERIAL, bodies[high:]))
            break
    unsettled.extendleft(reversed(kept))
    return [bodies for bodies in taken if len(bodies)]


def _ahead(number: int, base: int) -> int:
    """How far one serial number is ahead of another."""
    return ((number - base + 2**31) & _SERIAL) - 2**31
