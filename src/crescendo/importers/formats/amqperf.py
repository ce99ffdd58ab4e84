"""What did amqperf's consumer log?

One line a message: its sequence number, when it was sent and when it arrived, separated by blanks, commas or
semicolons. Times are moments since 1970 in seconds, milliseconds, microseconds or nanoseconds, told apart by their
digits. One file is one producer and one consumer. What the producer sent follows from what arrived.
"""

import re

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from crescendo.importers.format import (
    REASON,
    TEXT,
    Format,
    ImportOptions,
    ImportResult,
    SourceFile,
    Workspace,
    connection,
    peer,
)
from crescendo.importers.lines import first_fault, parse_lines, skipped
from crescendo.importers.messages import arrivals, connected, in_order_of_arrival, sent_by
from crescendo.importers.times import MS_NS, epoch, whole
from crescendo.record.schema import RECEIVED, SENT

LOG = "consumer"
_TIME = r"(?:[0-9]{10}(?:\.[0-9]{1,9})?|[0-9]{13}|[0-9]{16}|[0-9]{19})"
_LINE = re.compile(rf"\s*[0-9]+[\s,;]+{_TIME}[\s,;]+{_TIME}\s*")
_WORDS = r"^\s*(#.*|[^0-9]+)$"
"""A comment, or names of columns."""


def kind_of(_name: str, head: bytes) -> str | None:
    lines = head.decode("utf-8", "replace").splitlines()
    line = next((line for line in lines if line.strip() and not re.match(_WORDS, line)), "")
    return LOG if _LINE.fullmatch(line) else None


def read_sources(workspace: Workspace, sources: list[SourceFile], _options: ImportOptions) -> ImportResult:
    parsed = parse_lines(workspace, LOG, sources, with_messages)
    numbers = {source.number: index for index, source in enumerate(sources)}
    received = arrivals(connected(parsed.rows, numbers))
    return ImportResult(
        resolution_ns=MS_NS,
        frames=[(SENT, sent_by(received)), (RECEIVED, in_order_of_arrival(received))],
        rejects=parsed.rejects,
        records=parsed.lines,
        connections=[
            connection(numbers[source.number], role, f"{role}-{source.label}", source.label)
            for role in ("sender", "receiver")
            for source in sources
        ],
        peers=[peer(f"{role}-{source.label}", role) for role in ("sender", "receiver") for source in sources],
        caveats=[
            "only the consumer kept a log: what was sent follows from what arrived and from the holes between numbers; "
            "messages lost before the first or after the last that arrived are not known",
            "producer and consumer may have had different clocks: transfer times may be off by a constant",
        ],
    )


def with_messages(lines: DataFrame) -> DataFrame:
    cells = F.split(F.trim(F.col(TEXT)), r"[\s,;]+")
    seq, sent_ns, received_ns = (
        whole(F.get(cells, F.lit(0))), epoch(F.get(cells, F.lit(1))), epoch(F.get(cells, F.lit(2)))
    )  # fmt: skip
    reason = first_fault(
        (F.size(cells) != 3, "not three columns: sequence, sent, received"),
        (seq.isNull(), "the sequence number is not a whole number"),
        (sent_ns.isNull(), "the time of sending is no moment since 1970"),
        (received_ns.isNull(), "the time of arrival is no moment since 1970"),
    )
    return lines.withColumns(
        {
            REASON: skipped(F.col(TEXT).rlike(_WORDS), reason),
            "seq": seq,
            "sent_ns": sent_ns,
            "received_ns": received_ns,
        }
    )


AMQPERF = Format(
    name="amqperf",
    expected="lines of three columns: sequence number, time of sending, time of arrival",
    kind_of=kind_of,
    read_sources=read_sources,
)
