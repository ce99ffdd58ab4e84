"""How is the log of amqperf's consumer read?

One line per message: its sequence number, send time and receive time, separated by blanks, commas or semicolons. Times
are seconds, milliseconds, microseconds or nanoseconds since 1970, distinguished by their number of digits. One file is
one producer and one consumer. The sent messages are inferred from the received ones.
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
    connection_record,
    peer_record,
)
from crescendo.importers.inferred_messages import inferred_sent, received_rows, with_connection, with_order_flags
from crescendo.importers.lines import first_fault, parse_lines, skip_when
from crescendo.importers.times import MS_NS, epoch_by_digits, whole_number
from crescendo.record.schema import RECEIVED, SENT

LOG = "consumer"
_TIME = r"(?:[0-9]{10}(?:\.[0-9]{1,9})?|[0-9]{13}|[0-9]{16}|[0-9]{19})"
_LINE = re.compile(rf"\s*[0-9]+[\s,;]+{_TIME}[\s,;]+{_TIME}\s*")
_NO_DATA = r"^\s*(#.*|[^0-9]+)$"
"""A comment, or column names."""


def kind_of(_name: str, head: bytes) -> str | None:
    lines = head.decode("utf-8", "replace").splitlines()
    line = next((line for line in lines if line.strip() and not re.match(_NO_DATA, line)), "")
    return LOG if _LINE.fullmatch(line) else None


def read_sources(workspace: Workspace, sources: list[SourceFile], _options: ImportOptions) -> ImportResult:
    parsed = parse_lines(workspace, LOG, sources, with_messages)
    numbers = {source.number: index for index, source in enumerate(sources)}
    received = received_rows(with_connection(parsed.rows, numbers))
    return ImportResult(
        resolution_ns=MS_NS,
        frames=[(SENT, inferred_sent(received)), (RECEIVED, with_order_flags(received))],
        rejects=parsed.rejects,
        records=parsed.lines,
        connections=[
            connection_record(numbers[source.number], role, f"{role}-{source.label}", source.label)
            for role in ("sender", "receiver")
            for source in sources
        ],
        peers=[peer_record(f"{role}-{source.label}", role) for role in ("sender", "receiver") for source in sources],
        caveats=[
            "only the consumer kept a log: the sent messages are inferred from the received ones and the gaps between "
            "their numbers; losses before the first and after the last received message are not known",
            "producer and consumer may have had different clocks: transfer times may have a constant error",
        ],
    )


def with_messages(lines: DataFrame) -> DataFrame:
    cells = F.split(F.trim(F.col(TEXT)), r"[\s,;]+")
    seq = whole_number(F.get(cells, F.lit(0)))
    sent_ns, received_ns = epoch_by_digits(F.get(cells, F.lit(1))), epoch_by_digits(F.get(cells, F.lit(2)))
    reason = first_fault(
        (F.size(cells) != 3, "not three columns: sequence, sent, received"),
        (seq.isNull(), "the sequence number is not a whole number"),
        (sent_ns.isNull(), "the send time is not a time since 1970"),
        (received_ns.isNull(), "the receive time is not a time since 1970"),
    )
    return lines.withColumns(
        {
            REASON: skip_when(F.col(TEXT).rlike(_NO_DATA), reason),
            "seq": seq,
            "sent_ns": sent_ns,
            "received_ns": received_ns,
        }
    )


AMQPERF = Format(
    name="amqperf",
    expected="lines of three columns: sequence number, send time, receive time",
    kind_of=kind_of,
    read_sources=read_sources,
)
