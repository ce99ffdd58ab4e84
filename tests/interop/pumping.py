"""Channels driven by hand, without an engine."""

import select
import time
from typing import Any

from crescendo.load.driver import Outcome

PATIENCE_S = 60.0


def pumped(channel: Any, wait_s: float = 0.02) -> list[Any]:
    """Read and write once; whatever came, copied out of the receive buffer and settled."""
    channel.flush()
    select.select((channel,), (), (), wait_s)
    found = [item if isinstance(item, Outcome) else [row.tobytes() for row in item.payloads] for item in channel.pump()]
    if hasattr(channel, "settle"):
        channel.settle()
    channel.keep_alive(time.monotonic_ns())
    assert channel.closed is None, channel.closed
    return found


def ready(channel: Any) -> Any:
    deadline_s = time.monotonic() + PATIENCE_S
    while not channel.ready:
        assert time.monotonic() < deadline_s
        pumped(channel)
    return channel
