"""When was each message sent and received, according to Maestro before 1.4?

`senderd-rate.csv.gz` and `receiverd-rate.csv.gz`: a header (`eta;ata`, or `etd,atd` of a sender), then two quoted times
per message. A sender's are the due time and the send time; a receiver's are the send time and the receive time.
Messages have neither a number nor a sender: they are numbered in the order of their lines, all senders as one, so that
losses show as a difference of counts. Which messages were lost, duplicated or reordered is not known.
"""

import re

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from crescendo.importers.format import (
    LINE,
    REASON,
    SOURCE,
    TEXT,
    ImportResult,
    SourceFile,
    Workspace,
    connection_record,
    first_line,
    peer_record,
)
from crescendo.importers.inferred_messages import with_counted_seq
from crescendo.importers.lines import first_fault, parse_lines, skip_when, small_frame
from crescendo.importers.times import US_NS, calendar_time, milliseconds_then_us
from crescendo.record.schema import RECEIVED, SENT

SENDER, RECEIVER = "sender messages", "receiver messages"
DESTINATION = "maestro"
_HEADER = re.compile(r"et[ad][;,]at[ad]")
_TIME = r'"?([0-9]{4}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2})\.([0-9]+)"?'
_LINE = rf"^\s*{_TIME}[;,]\s*{_TIME}\s*$"


def kind_of_messages(name: str, head: bytes) -> str | None:
    """Later versions mark senders in the header; earlier ones only in the file name."""
    line = first_line(head)
    if _HEADER.fullmatch(line) is None:
        return None
    if line.startswith("etd") or "sender" in name.lower():
        return SENDER
    return RECEIVER if "receiver" in name.lower() else None


def read_messages(workspace: Workspace, sources: list[SourceFile], size: int) -> ImportResult:
    parsed = parse_lines(workspace, "messages", sources, with_times)
    result = ImportResult(
        resolution_ns=US_NS,
        rejects=parsed.rejects,
        records=parsed.lines,
        caveats=[
            "Maestro does not number messages: a loss is a difference of counts, and which messages were lost, "
            "duplicated or reordered is not known",
            "sender and receiver may have had different clocks: transfer times may have a constant error",
        ],
    )
    senders = [source for source in sources if source.kind == SENDER]
    receivers = [source for source in sources if source.kind == RECEIVER]
    if senders:
        rows = with_counted_seq(parsed.rows, [[source.number for source in senders]])
        result.frames.append((SENT, rows.select(
            F.lit(0).alias("sender"), "seq", F.lit(1).alias("attempt"), F.col("first_ns").alias("intended_ns"),
            F.col("second_ns").alias("sent_ns"), F.lit(size).alias("size"),
        )))  # fmt: skip
        name = senders[0].label if len(senders) == 1 else f"{len(senders)} senders"
        result.connections.append(connection_record(0, "sender", name, DESTINATION))
        result.peers.append(peer_record(name, "sender"))
    if receivers:
        numbers = [{SOURCE: source.number, "receiver": index} for index, source in enumerate(receivers)]
        rows = with_counted_seq(parsed.rows, [[source.number for source in receivers]]).join(
            F.broadcast(small_frame(workspace.spark, f"{SOURCE} INT, receiver INT", numbers)), on=SOURCE, how="inner"
        )
        result.frames.append((RECEIVED, rows.select(
            "receiver", F.lit(0).alias("sender"), "seq", F.col("first_ns").alias("intended_ns"),
            F.col("first_ns").alias("sent_ns"), F.col("second_ns").alias("received_ns"),
            F.col(LINE).alias("arrival"), F.lit(size).alias("size"), F.lit(0).alias("flags"),
        )))  # fmt: skip
        for index, source in enumerate(receivers):
            result.connections.append(connection_record(index, "receiver", source.label, DESTINATION))
            result.peers.append(peer_record(source.label, "receiver"))
    return result


def with_times(lines: DataFrame) -> DataFrame:
    first_ns, second_ns = _time_ns(1), _time_ns(3)
    reason = first_fault(
        (~F.col(TEXT).rlike(_LINE), 'not two times such as "2017-10-19 13:19:32.661300"'),
        (
            first_ns.isNull() | second_ns.isNull(),
            "the date does not exist, or a fraction has fewer than three or more than six digits",
        ),
    )
    header = F.trim(TEXT).rlike(f"^{_HEADER.pattern}$")
    return lines.withColumns({REASON: skip_when(header, reason), "first_ns": first_ns, "second_ns": second_ns})


def _time_ns(group: int) -> Column:
    seconds_ns = calendar_time(F.regexp_extract(TEXT, _LINE, group), "yyyy-MM-dd HH:mm:ss")
    return seconds_ns + milliseconds_then_us(F.regexp_extract(TEXT, _LINE, group + 1))
