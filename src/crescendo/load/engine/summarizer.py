"""How much arrived in each period, told to whoever listens?

A receiver may count what it gets and publish the count to a topic once a period, as monitoring in the field does; from
the lines of gridFTP transfer logs it adds up the bytes of each server instead. The last period is as long as the run
left it. What it publishes is plain JSON, not load: it carries no stamp and is not in the ledger.
"""

import json
import re
from collections import Counter
from typing import Any

import numpy as np

from crescendo.load.protocols.interfaces import Octets, SendChannel
from crescendo.model.workload import STAMP_BYTES, Summarize

_FIELD = re.compile(rb"\b(HOST|NBYTES)=(\S+)")
_SMALLEST_BYTES = 64
_MOST_SERVERS = 1000  # a damaged log must not fill the memory


class Summarizer:
    """Counts for one receiver, and publishes over a connection of its own."""

    def __init__(self, summary: Summarize, receiver: int, channel: SendChannel) -> None:
        self._every_ns = int(summary.every)
        self._reads_transfers = summary.of == "transfers"
        self._receiver = receiver
        self._messages = 0
        self._bytes: Counter[str] = Counter()
        self._begun_ns = 0
        self.channel = channel
        self.published = 0

    def begin(self, now_ns: int) -> None:
        """The first period begins."""
        self._begun_ns = now_ns

    def take(self, payloads: Octets) -> None:
        self._messages += len(payloads)
        if self._reads_transfers:
            for payload in payloads:
                self._add(payload[STAMP_BYTES:].tobytes())

    def tick(self, now_ns: int) -> None:
        """Publish every period that is over, those without a message too. Called a few times a second."""
        while now_ns - self._begun_ns >= self._every_ns and self.channel.closed is None:
            if self.channel.room() <= 0:
                break  # the count goes on, and is told with the next period
            self._tell(self._every_ns)
        self.channel.keep_alive(now_ns)
        self.channel.pump()
        self.channel.flush()

    def end(self, now_ns: int) -> None:
        """Publish what came since the last period, so that the counts add up to what arrived."""
        self.tick(now_ns)
        if self._messages and self.channel.closed is None and self.channel.room() > 0:
            self._tell(now_ns - self._begun_ns)
            self.channel.flush()

    def _tell(self, period_ns: int) -> None:
        self._publish(self._content(period_ns))
        self._messages = 0
        self._bytes.clear()
        self._begun_ns += period_ns

    def _content(self, period_ns: int) -> dict[str, Any]:
        content: dict[str, Any] = {"receiver": self._receiver, "period_s": period_ns / 1e9}
        return content | ({"bytes": dict(self._bytes)} if self._reads_transfers else {"messages": self._messages})

    def _publish(self, content: dict[str, Any]) -> None:
        text = json.dumps(content).encode().ljust(_SMALLEST_BYTES)
        self.channel.resize(len(text))
        self.channel.bodies[0] = np.frombuffer(text, np.uint8)
        self.channel.send(self.published, 1)
        self.published += 1

    def _add(self, line: bytes) -> None:
        fields = dict(_FIELD.findall(line))
        server, octets = fields.get(b"HOST", b"").decode(errors="replace"), fields.get(b"NBYTES", b"")
        if server and octets.isdigit() and (server in self._bytes or len(self._bytes) < _MOST_SERVERS):
            self._bytes[server] += int(octets)
