"""Which deliveries has a receiver settled?

Unsettled deliveries are batches in sending order, each with the id of its first delivery. A receiver settles a range of
ids, which may begin and end inside a batch.
"""

from collections import deque
from typing import Any, Protocol, TypeVar

from crescendo.wire.amqp10.serial import SERIAL_MASK, serial_difference


class DeliveryBatch(Protocol):
    """Deliveries with consecutive ids. A slice of it is such a batch again."""

    def __len__(self) -> int: ...

    def __getitem__(self, part: slice, /) -> Any: ...


Batch = TypeVar("Batch", bound=DeliveryBatch)


def take_settled(unsettled: deque[tuple[int, Batch]], first: int, last: int) -> list[Batch]:
    """Remove the deliveries first to last from the unsettled ones. Ids are serial numbers that wrap at 2^32."""
    taken: list[Batch] = []
    kept: list[tuple[int, Batch]] = []
    while unsettled and serial_difference(last, first) >= 0:
        start, batch = unsettled.popleft()
        low, high = max(serial_difference(first, start), 0), min(serial_difference(last, start) + 1, len(batch))
        if high <= 0:
            unsettled.appendleft((start, batch))  # this batch and all later ones are after the settled range
            break
        if low > 0:
            kept.append((start, batch[:low]))
        taken.append(batch[low:high])
        if high < len(batch):
            unsettled.appendleft(((start + high) & SERIAL_MASK, batch[high:]))
            break
    unsettled.extendleft(reversed(kept))
    return [batch for batch in taken if len(batch)]
