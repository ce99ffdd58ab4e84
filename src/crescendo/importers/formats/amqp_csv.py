"""How are the CSV files of the federation study's benchmark read?

One line per acknowledged message: message, producer and consumer id, result, and three times in milliseconds since
1970: sent, acknowledgement sent (by the consumer, on receipt), acknowledgement received (by the producer). The final
lines (runtime, throughput, bandwidth) are derived from the messages and are not imported. A message without an
acknowledgement has no line: it is a gap in the numbers.
"""

import re

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from crescendo.importers.format import (
    LINE,
    REASON,
    SOURCE,
    TEXT,
    Format,
    ImportOptions,
    ImportResult,
    SourceFile,
    Workspace,
    connection_record,
    first_line,
    peer_record,
)
from crescendo.importers.inferred_messages import inferred_sent, with_order_flags
from crescendo.importers.lines import first_fault, parse_lines, skip_when, small_frame
from crescendo.importers.times import MS_NS, epoch_ms, whole_number
from crescendo.model.errors import ConfigError
from crescendo.model.workload import MAX_CONNECTIONS
from crescendo.record.manifest import ConnectionRole
from crescendo.record.schema import RECEIVED, SENT, SETTLED, Settlement

CSV = "acknowledgements"
_HEADER = "Message ID,Producer ID,Consumer ID,Result,Sent time,Ack Sent Time,Ack Recv Time"
_TRAILER = r"^(runtime|throughput|bandwidth),"
_END = r"^-1,"
"""The line of the message that ends a run."""

_SIZE_IN_NAME = re.compile(r"_(?:latency|bandwidth)_[0-9]+_([0-9]{1,9})_")


def kind_of(_name: str, head: bytes) -> str | None:
    line = first_line(head).rstrip(",")
    return CSV if line.replace(" ", "").lower() == _HEADER.replace(" ", "").lower() else None


def read_sources(workspace: Workspace, sources: list[SourceFile], _options: ImportOptions) -> ImportResult:
    parsed = parse_lines(workspace, CSV, sources, with_acknowledgements)
    result = ImportResult(
        resolution_ns=MS_NS,
        rejects=parsed.rejects,
        records=parsed.lines,
        caveats=[
            "only acknowledged messages have a line: a missing number counts as lost, even if only its acknowledgement "
            "was; losses before the first and after the last line are not known",
            "the receive time is from the consumer's clock, the others are from the producer's",
        ],
    )
    senders = _connection_numbers(result, parsed.rows, sources, "producer", "sender")
    receivers = _connection_numbers(result, parsed.rows, sources, "consumer", "receiver")
    sizes = [{SOURCE: source.number, "size": _size(source)} for source in sources]
    rows = (
        parsed.rows.join(F.broadcast(senders), on=[SOURCE, "producer"], how="inner")
        .join(F.broadcast(receivers), on=[SOURCE, "consumer"], how="inner")
        .join(F.broadcast(small_frame(workspace.spark, f"{SOURCE} INT, size INT", sizes)), on=SOURCE, how="inner")
    )
    with_send_time = rows.where(F.col("sent_ns").isNotNull())
    received = with_send_time.withColumns({"intended_ns": F.col("sent_ns"), "arrival": F.col(LINE)})
    result.frames = [
        (SENT, inferred_sent(rows)),
        (RECEIVED, with_order_flags(received)),
        (SETTLED, _settled(with_send_time)),
    ]
    return result


def with_acknowledgements(lines: DataFrame) -> DataFrame:
    text = F.regexp_replace(F.col(TEXT), r",\s*$", "")
    cells = F.split(text, r"\s*,\s*")
    cell = [F.get(cells, F.lit(index)) for index in range(7)]
    seq, producer, consumer = whole_number(cell[0]), whole_number(cell[1], 9), whole_number(cell[2], 9)
    accepted = cell[3] == "1"
    sent_ns, received_ns, settled_ns = (epoch_ms(cell[index]) for index in (4, 5, 6))
    reason = first_fault(
        (F.size(cells) != 7, "not seven columns"),
        (seq.isNull(), "the message id is not a whole number"),
        (producer.isNull() | consumer.isNull(), "the producer or consumer id is not a whole number"),
        (~cell[3].rlike("^-?[0-9]{1,9}$"), "the result is not a whole number"),
        (accepted & sent_ns.isNull(), "the sent time is not milliseconds since 1970"),
        (received_ns.isNull() | settled_ns.isNull(), "a time of the acknowledgement is not milliseconds since 1970"),
    )
    return lines.withColumns(
        {
            REASON: skip_when(
                F.lower(text).startswith("message id,") | text.rlike(_TRAILER) | text.rlike(_END), reason
            ),
            "seq": seq,
            "producer": producer,
            "consumer": consumer,
            # The study's warning has 0 instead of the send time: the message arrived after an unknown time. Our own
            # exports keep it.
            "sent_ns": F.when(cell[4] != "0", sent_ns),
            "received_ns": received_ns,
            "settled_ns": settled_ns,
        }
    )


def _settled(rows: DataFrame) -> DataFrame:
    return rows.select(
        "sender", F.col("seq").alias("first_seq"), F.col("seq").alias("last_seq"), "sent_ns", "settled_ns",
        F.lit(int(Settlement.ACCEPTED)).alias("outcome"),
    )  # fmt: skip


def _connection_numbers(
    result: ImportResult, rows: DataFrame, sources: list[SourceFile], key: str, role: ConnectionRole
) -> DataFrame:
    """Number the ids, which are unique only within a file, and list their connections."""
    labels = {source.number: source.label for source in sources}
    found = rows.select(SOURCE, key).distinct().limit(MAX_CONNECTIONS + 1).collect()
    if len(found) > MAX_CONNECTIONS:
        raise ConfigError(f"more than {MAX_CONNECTIONS:,} {key}s in these files; import fewer files at a time")
    table = []
    for number, row in enumerate(sorted(found, key=lambda row: (row[SOURCE], row[key]))):
        name = f"{key}-{row[key]}@{labels[row[SOURCE]]}"
        result.connections.append(connection_record(number, role, name, labels[row[SOURCE]]))
        result.peers.append(peer_record(name, role))
        table.append({SOURCE: row[SOURCE], key: row[key], role: number})
    return small_frame(rows.sparkSession, f"{SOURCE} INT, {key} BIGINT, {role} INT", table)


def _size(source: SourceFile) -> int:
    match = _SIZE_IN_NAME.search(source.path.name)
    return int(match[1]) if match else 0


AMQP_CSV = Format(
    name="amqp-csv",
    expected=f"a CSV file that begins with {_HEADER}",
    kind_of=kind_of,
    read_sources=read_sources,
)
