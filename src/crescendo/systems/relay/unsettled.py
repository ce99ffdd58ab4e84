"""Which deliveries has a receiver settled?

Unsettled deliveries are batches in sending order, each with the id of its first delivery. A receiver settles a range of
ids, which may begin and end inside a batch.
"""

from collections import deque

from crescendo.systems.relay.queues import Octets

_SERIAL = 0xFFFF_FFFF


def take_settled(unsettled: deque[tuple[int, Octets]], first: int, last: int) -> list[Octets]:
    """Remove the deliveries first to last from the unsettled ones. Ids are serial numbers that wrap at 2^32."""
    taken: list[Octets] = []
    kept: list[tuple[int, Octets]] = []
    while unsettled and _ahead(last, first) >= 0:
        start, bodies = unsettled.popleft()
        low, high = max(_ahead(first, start), 0), min(_ahead(last, start) + 1, len(bodies))
        if high <= 0:
            unsettled.appendleft((start, bodies))  # this batch and all later ones are after the settled range
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
