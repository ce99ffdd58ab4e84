"""Bytes into a connection, and out of it. Knows no protocol."""

from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Any


def events_of(connection: Any, data: bytes, cuts: Iterable[int] = ()) -> Iterator[Any]:
    """Feed the bytes, cut in these places, and yield every event while its views are valid."""
    places = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    for start, end in pairwise(places):
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


def spoken(connection: Any) -> bytes:
    """What the connection wants to write, taken from it."""
    octets = b"".join(connection.outgoing)
    connection.outgoing.clear()
    return octets
