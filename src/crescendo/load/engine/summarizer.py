"""How does a receiver publish summaries of what it received?

A receiver may count its messages and publish the count to a topic once per period, as monitoring does in production;
for gridFTP transfer logs it sums the bytes per server instead. The last period may be shorter than the others.
Summaries are plain JSON, not load: they carry no stamp and are not in the ledger.
"""

import json
import re
from collections import Counter
from typing import Any

import numpy as np

from crescendo.load.protocols.interfaces import Octets, SendChannel
from crescendo.model.workload import STAMP_BYTES, Summarize

_FIELD = re.compile(rb"\b(HOST|NBYTES)=(\S+)")
_MIN_BYTES = 64
_MAX_SERVERS = 1000  # a damaged log must not fill the memory


class Summarizer:
    """Counts for one receiver, and publishes on a connection of its own."""

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
        """Start the first period."""
        self._begun_ns = now_ns

    def take(self, payloads: Octets) -> None:
        self._messages += len(payloads)
        if self._reads_transfers:
            for payload in payloads:
                self._add(payload[STAMP_BYTES:].tobytes())

    def tick(self, now_ns: int) -> None:
        """Publish every completed period, including empty ones. Called a few times per second."""
        while now_ns - self._begun_ns >= self._every_ns and self.channel.closed is None:
            if self.channel.room() <= 0:
                break  # the count continues and is published with the next period
            self._publish_period(self._every_ns)
        self.channel.keep_alive(now_ns)
        self.channel.pump()
        self.channel.flush()

    def end(self, now_ns: int) -> None:
        """Publish what arrived since the last period, so that the counts add up to the total."""
        self.tick(now_ns)
        if self._messages and self.channel.closed is None and self.channel.room() > 0:
            self._publish_period(now_ns - self._begun_ns)
            self.channel.flush()

    def _publish_period(self, period_ns: int) -> None:
        self._publish(self._content(period_ns))
        self._messages = 0
        self._bytes.clear()
        self._begun_ns += period_ns

    def _content(self, period_ns: int) -> dict[str, Any]:
        content: dict[str, Any] = {"receiver": self._receiver, "period_s": period_ns / 1e9}
        return content | ({"bytes": dict(self._bytes)} if self._reads_transfers else {"messages": self._messages})

    def _publish(self, content: dict[str, Any]) -> None:
        text = json.dumps(content).encode().ljust(_MIN_BYTES)
        self.channel.resize(len(text))
        self.channel.bodies[0] = np.frombuffer(text, np.uint8)
        self.channel.send(self.published, 1)
        self.published += 1

    def _add(self, line: bytes) -> None:
        fields = dict(_FIELD.findall(line))
        server, octets = fields.get(b"HOST", b"").decode(errors="replace"), fields.get(b"NBYTES", b"")
        if server and octets.isdigit() and (server in self._bytes or len(self._bytes) < _MAX_SERVERS):
            self._bytes[server] += int(octets)
