"""How are connections closed without losing their last acknowledgements?

A client that closes right after its last frame cannot know that the broker processed it: ActiveMQ Classic and Artemis
drop acknowledgements that they have not read when the connection goes, and deliver those messages to the next run. So
all connections of an engine start their close handshake at once, then wait together, for a short while, until the
system has closed each of them.
"""

import select
import time
from collections.abc import Iterable

from crescendo.load.protocols.interfaces import LoadChannel

CLOSE_TIMEOUT_S = 2.0
_LOOK_AGAIN_S = 0.05  # at channels that are done without another byte


def close_gracefully(channels: Iterable[LoadChannel], timeout_s: float = CLOSE_TIMEOUT_S) -> None:
    """Start the close handshake on all of them, then close each one when the system has answered or time is up."""
    closing = list(channels)
    for channel in closing:
        channel.start_close()
    _await_peer_close([channel for channel in closing if not channel.peer_closed()], timeout_s)
    for channel in closing:
        channel.close()


def _await_peer_close(channels: list[LoadChannel], timeout_s: float) -> None:
    deadline_s = time.monotonic() + timeout_s
    poll = select.poll()
    waiting = {channel.fileno(): channel for channel in channels}
    for number, channel in waiting.items():
        poll.register(number, _interest(channel))
    while waiting and (left_s := deadline_s - time.monotonic()) > 0:
        ready = [number for number, _ in poll.poll(min(left_s, _LOOK_AGAIN_S) * 1000)]
        for number in ready or list(waiting):
            if waiting[number].peer_closed():
                poll.unregister(number)
                del waiting[number]
            else:
                poll.modify(number, _interest(waiting[number]))


def _interest(channel: LoadChannel) -> int:
    """Which events to poll for: end of stream, and writability while the close frame is still buffered."""
    return select.POLLIN if channel.flush() else select.POLLIN | select.POLLOUT
