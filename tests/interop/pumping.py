"""Channels driven by hand, without an engine."""

import select
import time
from typing import Any

import numpy as np

from crescendo.load.protocols.interfaces import SettledMessages

TIMEOUT_S = 60.0


def random_payloads(count: int, size: int) -> list[bytes]:
    return [row.tobytes() for row in np.random.default_rng(3).integers(0, 256, (count, size), np.uint8)]


def pumped(channel: Any, wait_s: float = 0.02) -> list[Any]:
    """Read and write once; returns what arrived, copied out of the receive buffer and settled."""
    channel.flush()
    select.select((channel,), (), (), wait_s)
    found = [
        item if isinstance(item, SettledMessages) else [row.tobytes() for row in item.payloads]
        for item in channel.pump()
    ]
    if hasattr(channel, "settle"):
        channel.settle()
    channel.keep_alive(time.monotonic_ns())
    assert channel.closed is None, channel.closed
    return found


def ready(channel: Any) -> Any:
    deadline_s = time.monotonic() + TIMEOUT_S
    while not channel.ready:
        assert time.monotonic() < deadline_s
        pumped(channel)
    return channel


def send_all(channel: Any, payloads: list[bytes], *, settled: bool) -> list[tuple[int, int, int]]:
    """Send the payloads through the channel's batch; returns the outcomes in order of arrival."""
    ready(channel)
    rows = channel.bodies  # the engine writes stamps only; here whole payloads are compared
    sent, done = 0, 0
    outcomes: list[tuple[int, int, int]] = []
    deadline_s = time.monotonic() + TIMEOUT_S
    while sent < len(payloads) or (not settled and done < len(payloads)) or not channel.flush():
        assert time.monotonic() < deadline_s, f"{sent} sent, {done} settled"
        count = min(channel.room(), len(payloads) - sent)
        for row, payload in zip(rows, payloads[sent : sent + count], strict=False):
            row[:] = memoryview(payload)
        if count:
            channel.send(sent, count)
            sent += count
        for outcome in pumped(channel, 0 if count else 0.02):
            outcomes.append(tuple(outcome))
            done += len(outcome.seqs)
    return outcomes


def receive_all(channel: Any, count: int) -> list[bytes]:
    received: list[bytes] = []
    deadline_s = time.monotonic() + TIMEOUT_S
    while len(received) < count:
        assert time.monotonic() < deadline_s, f"{len(received)} of {count} received"
        for payloads in pumped(channel):
            received += payloads
    return received


def refusal(channel: Any) -> str:
    """Why the system closed the channel; waits for that."""
    deadline_s = time.monotonic() + TIMEOUT_S
    try:
        while channel.closed is None:
            assert time.monotonic() < deadline_s, "no refusal"
            channel.flush()
            select.select((channel,), (), (), 0.02)
            list(channel.pump())
        return str(channel.closed)
    finally:
        channel.close()
