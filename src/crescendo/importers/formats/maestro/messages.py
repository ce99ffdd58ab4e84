"""When did each message leave and arrive, according to Maestro before 1.4?

`senderd-rate.csv.gz` and `receiverd-rate.csv.gz`: a header (`eta;ata`, or `etd,atd` of a sender), then two quoted times
a message. At a sender they are when it was due and when it left; at a receiver when it left and when it arrived.
Messages have no numbers and nobody knows whose they are: they are numbered in the order of their lines, all senders as
one, so that losses show as a difference of counts. Which were lost, repeated or overtaken cannot be said.
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
    connection,
    first_line,
    peer,
)
from crescendo.importers.lines import first_fault, parse_lines, skipped, small_frame
from crescendo.importers.messages import counted
from crescendo.importers.times import US_NS, calendar, milliseconds_then_us
from crescendo.record.schema import RECEIVED, SENT

SENDER, RECEIVER = "sender messages", "receiver messages"
DESTINATION = "maestro"
_HEADER = re.compile(r"et[ad][;,]at[ad]")
_TIME = r'"?([0-9]{4}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2})\.([0-9]+)"?'
_LINE = rf"^\s*{_TIME}[;,]\s*{_TIME}\s*$"


def kind_of_messages(name: str, head: bytes) -> str | None:
    """The header tells senders apart in later versions; before, the name of the file does."""
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
            "Maestro gives messages no numbers: a loss is a difference of counts, and which messages were lost, "
            "repeated or overtaken is not known",
            "sender and receiver may have had different clocks: transfer times may be off by a constant",
        ],
    )
    senders = [source for source in sources if source.kind == SENDER]
    receivers = [source for source in sources if source.kind == RECEIVER]
    if senders:
        rows = counted(parsed.rows, [[source.number for source in senders]])
        result.frames.append((SENT, rows.select(
            F.lit(0).alias("sender"), "seq", F.lit(1).alias("attempt"), F.col("first_ns").alias("intended_ns"),
            F.col("second_ns").alias("sent_ns"), F.lit(size).alias("size"),
        )))  # fmt: skip
        name = senders[0].label if len(senders) == 1 else f"{len(senders)} senders"
        result.connections.append(connection(0, "sender", name, DESTINATION))
        result.peers.append(peer(name, "sender"))
    if receivers:
        numbers = [{SOURCE: source.number, "receiver": index} for index, source in enumerate(receivers)]
        rows = counted(parsed.rows, [[source.number for source in receivers]]).join(
            F.broadcast(small_frame(workspace.spark, f"{SOURCE} INT, receiver INT", numbers)), on=SOURCE, how="inner"
        )
        result.frames.append((RECEIVED, rows.select(
            "receiver", F.lit(0).alias("sender"), "seq", F.col("first_ns").alias("intended_ns"),
            F.col("first_ns").alias("sent_ns"), F.col("second_ns").alias("received_ns"),
            F.col(LINE).alias("arrival"), F.lit(size).alias("size"), F.lit(0).alias("flags"),
        )))  # fmt: skip
        for index, source in enumerate(receivers):
            result.connections.append(connection(index, "receiver", source.label, DESTINATION))
            result.peers.append(peer(source.label, "receiver"))
    return result


def with_times(lines: DataFrame) -> DataFrame:
    first_ns, second_ns = _moment(1), _moment(3)
    reason = first_fault(
        (~F.col(TEXT).rlike(_LINE), 'not two times such as "2017-10-19 13:19:32.661300"'),
        (
            first_ns.isNull() | second_ns.isNull(),
            "no such date, or a fraction of less than three or more than six digits",
        ),
    )
    header = F.trim(TEXT).rlike(f"^{_HEADER.pattern}$")
    return lines.withColumns({REASON: skipped(header, reason), "first_ns": first_ns, "second_ns": second_ns})


def _moment(group: int) -> Column:
    seconds_ns = calendar(F.regexp_extract(TEXT, _LINE, group), "yyyy-MM-dd HH:mm:ss")
    return seconds_ns + milliseconds_then_us(F.regexp_extract(TEXT, _LINE, group + 1))
