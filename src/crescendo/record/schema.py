"""What are the columns of a recording?

Declared once, here. The Arrow schema of the writers and the DDL of the Spark readers are both derived from it. All
integers are signed, because Spark reads unsigned Parquet columns wrongly. Knows neither Spark nor files.
"""

from dataclasses import dataclass
from enum import IntEnum, IntFlag

import numpy as np
import pyarrow as pa

I16, I32, I64, F64, TEXT = "i16", "i32", "i64", "f64", "text"

_ARROW = {I16: pa.int16(), I32: pa.int32(), I64: pa.int64(), F64: pa.float64(), TEXT: pa.string()}
_SPARK = {I16: "SMALLINT", I32: "INT", I64: "BIGINT", F64: "DOUBLE", TEXT: "STRING"}
NUMPY = {I16: np.int16, I32: np.int32, I64: np.int64, F64: np.float64}


@dataclass(frozen=True, slots=True)
class Column:
    name: str
    kind: str


def _table(**columns: str) -> tuple[Column, ...]:
    return tuple(Column(name, kind) for name, kind in columns.items())


SENT, SETTLED, RECEIVED, READINGS, EVENTS = "sent", "settled", "received", "readings", "events"
OWN_DELAY, READ_DELAY = "own_delay", "read_delay"
SPANS, HOPS, RATES, HISTOGRAMS = "spans", "hops", "rates", "histograms"

AGENT_SOURCE, HANDLER_STARTED, HANDLER_EVENT = "agent source", "handler started", "handler event"
HANDLER_ENDED = "handler ended"
AGENT_EVENTS = (AGENT_SOURCE, HANDLER_STARTED, HANDLER_EVENT, HANDLER_ENDED)
"""Kinds of events of an agent."""

READ_DELAY_FLOOR_NS = 100_000
"""Messages that are in no range of `read_delay` were read less than this long after they arrived."""

HOP_SAMPLED_EVERY = 100
"""Routers sample the messages whose sequence number is a multiple of this."""

TABLES: dict[str, tuple[Column, ...]] = {
    SENT: _table(sender=I16, seq=I64, attempt=I16, intended_ns=I64, sent_ns=I64, size=I32),
    SETTLED: _table(sender=I16, first_seq=I64, last_seq=I64, sent_ns=I64, settled_ns=I64, outcome=I16),
    RECEIVED: _table(
        receiver=I16, sender=I16, seq=I64, intended_ns=I64, sent_ns=I64, received_ns=I64,
        arrival=I64, size=I32, flags=I16,
    ),
    # Where the delay that was ours is not sent_ns - intended_ns, because the other side held the sender back.
    OWN_DELAY: _table(sender=I16, first_seq=I64, last_seq=I64, own_ns=I64),
    READ_DELAY: _table(receiver=I16, first_arrival=I64, last_arrival=I64, late_ns=I64),
    READINGS: _table(t_ns=I64, source=TEXT, entity=TEXT, metric=TEXT, value=F64),
    EVENTS: _table(t_ns=I64, source=TEXT, kind=TEXT, detail=TEXT),
    SPANS: _table(t_ns=I64, source=TEXT, action=TEXT, duration_ns=I64, value=F64, outcome=TEXT, detail=TEXT),
    # Sampled by routers that can.
    HOPS: _table(node=TEXT, sender=I16, seq=I64, arrived_ns=I64, departed_ns=I64),
    # Only for imports whose source kept no messages. Buckets are those of `model.histogram`.
    RATES: _table(t_ns=I64, peer=TEXT, role=TEXT, messages=I64),
    HISTOGRAMS: _table(t_ns=I64, peer=TEXT, kind=TEXT, bucket=I32, count=I64),
}  # fmt: skip


class Settlement(IntEnum):
    """The outcome column of `settled`."""

    ACCEPTED = 1
    REJECTED = 2
    RELEASED = 3
    MODIFIED = 4
    SHED = 5  # never sent: the sender's own buffer was full


class Flag(IntFlag):
    """The flags column of `received`."""

    REDELIVERED = 1
    CORRUPT = 2
    STRAY = 4
    OUT_OF_ORDER = 8


HELD_BEFORE, STRAYS = "held before", "strays"
"""Events of receivers: a destination held messages before the run; messages of other runs arrived."""


def column_names(table: str) -> tuple[str, ...]:
    """In the order of the declaration."""
    return tuple(column.name for column in TABLES[table])


def arrow_schema(table: str) -> pa.Schema:
    return pa.schema([pa.field(column.name, _ARROW[column.kind], nullable=False) for column in TABLES[table]])


def spark_ddl(table: str) -> str:
    """The schema as Spark DDL, so that readers need no inference and detect a wrong type at once."""
    return ", ".join(f"{column.name} {_SPARK[column.kind]}" for column in TABLES[table])
