"""What do clients write to the recording?

A row for every message sent, acknowledged and received, so that the ledger, the rates and the latencies are those of
any other load; and a span for every request: the original's `CSndReq`, with its outcome, and with its tiers where they
are recorded. Rows are buffered and written together, because one by one they would cost as much as the requests.
Counts the values of the statistics. Judges nothing.
"""

from collections import Counter
from typing import Any, NamedTuple

import numpy as np

from crescendo.load.engine.request_spans import NETWORK
from crescendo.load.engine.statistics import Distribution
from crescendo.mlmq.broker.legacy_log_names import REQUESTS
from crescendo.mlmq.client import Exchange
from crescendo.mlmq.workloads.message_content import MessageContent
from crescendo.record.schema import RECEIVED, SENT, SETTLED, SPANS, Flag, Settlement
from crescendo.record.writer import RowSink

OK, EMPTY, OVERLOADED, TIMEOUT, ERROR = "ok", "empty", "overloaded", "timeout", "error"
REQUEST = "CSndReq"
TIERS = ("receive", "queue wait", "pool wait", "database", "send", "wait for a message")
"""In the order of the times that a broker reports. The action of a tier is its request, a slash and its own name."""

_NAMES = {kind.__name__: name.removesuffix("Request") for kind, name in REQUESTS.items()}
_FIRST_ATTEMPT = 1
_FLUSH_ROWS = 4096


class Span(NamedTuple):
    """One request of one client, with its outcome."""

    t_ns: int
    source: str
    duration_ns: int
    useful: float
    outcome: str


def classify(exchange: Exchange, timeout_ns: int) -> tuple[str, int]:
    """The outcome of a request, and its duration without the wait that it requested."""
    waited_ns = exchange.times.wait_ns if exchange.times is not None else 0
    duration_ns = exchange.duration_ns - waited_ns
    if exchange.outcome in {OK, EMPTY}:
        return (TIMEOUT if duration_ns > timeout_ns else exchange.outcome), duration_ns
    if exchange.outcome == OVERLOADED:
        return OVERLOADED, duration_ns
    return (TIMEOUT if exchange.outcome == "unanswered" else ERROR), duration_ns


class WorkloadRecording:
    """Buffers the rows of one process."""

    def __init__(self, log: RowSink) -> None:
        self._log = log
        self._sent: list[tuple[int, int, int, int]] = []
        self._settled: list[tuple[int, int, int, int]] = []
        self._received: list[tuple[int, ...]] = []
        self._spans: dict[str, list[Span]] = {}
        self._tiers: dict[str, list[tuple[Any, ...]]] = {}
        self._arrivals: Counter[int] = Counter()
        self._highest: dict[tuple[int, int], int] = {}  # receiver, sender: the highest number received
        self.outcomes: Counter[str] = Counter()
        self.sent = self.stored = self.received = self.unreadable = 0
        self.durations = Distribution()
        self._buffered_rows = 0

    def record_sent(self, content: MessageContent, size: int, stored_ns: int | None) -> None:
        """A message was sent; `stored_ns` is None when it is unknown whether it was stored."""
        self.sent += 1
        self._sent.append((content.sender, content.seq, content.sent_ns, size))
        if stored_ns is not None:
            self.stored += 1
            self._settled.append((content.sender, content.seq, content.sent_ns, stored_ns))
        self._count_row()

    def record_received(
        self, receiver: int, content: MessageContent | None, size: int, redelivered: bool, now_ns: int
    ) -> None:
        """A message was received; an unreadable one is corrupt."""
        arrival = self._arrivals[receiver]
        self._arrivals[receiver] += 1
        if content is None:
            self.unreadable += 1
            self._received.append((receiver, 0, 0, 0, now_ns, arrival, size, int(Flag.CORRUPT)))
        else:
            self.received += 1
            flags = Flag.REDELIVERED if redelivered else Flag(0)
            if content.seq < self._highest.get((receiver, content.sender), 0):
                flags |= Flag.OUT_OF_ORDER
            else:
                self._highest[receiver, content.sender] = content.seq
            self._received.append(
                (receiver, content.sender, content.seq, content.sent_ns, now_ns, arrival, size, int(flags))
            )
        self._count_row()

    def record_request(self, source: str, exchange: Exchange, timeout_ns: int, breakup: bool) -> None:
        """A request ended."""
        outcome, duration_ns = classify(exchange, timeout_ns)
        self.outcomes[outcome] += 1
        self.durations.add_one(duration_ns)
        kind = _NAMES[exchange.kind]
        useful = 1.0 if outcome == OK else 0.0
        self._spans.setdefault(kind, []).append(Span(exchange.ended_ns, source, duration_ns, useful, outcome))
        if breakup and exchange.times is not None and (network_ns := exchange.network_ns) is not None:
            row = (exchange.ended_ns, source, useful, outcome, network_ns, *exchange.times)
            self._tiers.setdefault(kind, []).append(row)
        self._count_row()

    def flush(self) -> None:
        """Write the buffered rows."""
        self._buffered_rows = 0
        if self._sent:
            sender, seq, sent_ns, size = _columns(self._sent)
            self._log.append(SENT, len(seq), sender, seq, _FIRST_ATTEMPT, sent_ns, sent_ns, size)
            self._sent.clear()
        if self._settled:
            sender, seq, sent_ns, settled_ns = _columns(self._settled)
            accepted = int(Settlement.ACCEPTED)
            self._log.append(SETTLED, len(seq), sender, seq, seq, sent_ns, settled_ns, accepted)
            self._settled.clear()
        if self._received:
            receiver, sender, seq, sent_ns, now_ns, arrival, size, flags = _columns(self._received)
            self._log.append(RECEIVED, len(seq), receiver, sender, seq, sent_ns, sent_ns, now_ns, arrival, size, flags)
            self._received.clear()
        self._flush_spans()

    def _flush_spans(self) -> None:
        for kind, spans in self._spans.items():
            t_ns, source, duration_ns, useful, outcome = zip(*spans, strict=True)
            self._append(f"{REQUEST}#{kind}", t_ns, source, duration_ns, useful, outcome)
        for kind, rows in self._tiers.items():
            t_ns, source, useful, outcome, network_ns, *tiers = zip(*rows, strict=True)
            for tier, duration_ns in zip((NETWORK, *TIERS), (network_ns, *tiers), strict=True):
                self._append(f"{REQUEST}#{kind}/{tier}", t_ns, source, duration_ns, useful, outcome)
        self._spans.clear()
        self._tiers.clear()

    def _append(self, action: str, t_ns: Any, source: Any, duration_ns: Any, useful: Any, outcome: Any) -> None:
        self._log.append(
            SPANS,
            len(t_ns),
            np.array(t_ns, np.int64),
            np.array(source, object),
            action,
            np.array(duration_ns, np.int64),
            np.array(useful, np.float64),
            np.array(outcome, object),
            "",
        )

    def _count_row(self) -> None:
        self._buffered_rows += 1
        if self._buffered_rows >= _FLUSH_ROWS:
            self.flush()


def _columns(rows: list[Any]) -> Any:
    return np.array(rows, np.int64).T.copy()
