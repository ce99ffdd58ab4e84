"""Feeds bytes to a connection and takes its output. Knows no protocol."""

from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Any


def events_of(connection: Any, data: bytes, cuts: Iterable[int] = ()) -> Iterator[Any]:
    """Feed the bytes, split at these positions, and yield every event while its views are valid."""
    positions = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    for start, end in pairwise(positions):
        position = start
        while position < end:
            buffer = connection.receive_buffer()
            count = min(len(buffer), end - position)
            assert count, "the receive buffer is full and nothing can be read from it"
            buffer[:count] = data[position : position + count]
            connection.received(count)
            position += count
            while (event := connection.next_event()) is not None:
                yield event


def take_outgoing(connection: Any) -> bytes:
    """Take the bytes that the connection has queued for writing."""
    octets = b"".join(connection.outgoing)
    connection.outgoing.clear()
    return octets
