"""How do connections end without taking anything back?

Who closes right after a last word cannot know whether it was heard: ActiveMQ Classic and Artemis lose acknowledgements
when the connection is gone before they came to them, and deliver those messages to the next run. So all connections of
an engine say good-bye at once, then wait together, for a short while, until the system has hung up on each.
"""

import select
import time
from collections.abc import Iterable

from crescendo.load.protocols.interfaces import LoadChannel

PATIENCE_S = 2.0


def close_gracefully(channels: Iterable[LoadChannel], patience_s: float = PATIENCE_S) -> None:
    """Say good-bye on all of them, and let go when the system has heard it, or takes too long."""
    leaving = list(channels)
    for channel in leaving:
        channel.start_close()
    _await_hanging_up([channel for channel in leaving if not channel.peer_closed()], patience_s)
    for channel in leaving:
        channel.close()


def _await_hanging_up(channels: list[LoadChannel], patience_s: float) -> None:
    deadline_s = time.monotonic() + patience_s
    poll = select.poll()
    waiting = {channel.fileno(): channel for channel in channels}
    for number, channel in waiting.items():
        poll.register(number, _interest(channel))
    while waiting and (left_s := deadline_s - time.monotonic()) > 0:
        for number, _ in poll.poll(left_s * 1000):
            if waiting[number].peer_closed():
                poll.unregister(number)
                del waiting[number]
            else:
                poll.modify(number, _interest(waiting[number]))


def _interest(channel: LoadChannel) -> int:
    """What to wait for: its end, and before that room for a good-bye that found the socket full."""
    return select.POLLIN if channel.flush() else select.POLLIN | select.POLLOUT
