"""How are the transfer files of quiver's arrows read?

Since June 2022 `sender-transfers.csv` has `send-time,0` and `receiver-transfers.csv` has `send-time,receive-time`, all
since 1970: messages have no numbers, so they are counted. Before, they had `id,send-time`, for some messages
`Sid,settle-time`, and `id,send-time,receive-time`. Ids start over with every sender, and a receiver does not record the
sender, so the files of one directory are one pair. Without the sender's file, sent messages are inferred from received
ones.
"""

import re
from functools import reduce
from typing import Final

import msgspec
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
    first_line,
    peer_record,
)
from crescendo.importers.inferred_messages import (
    inferred_sent,
    received_rows,
    with_connection,
    with_counted_seq,
    with_order_flags,
)
from crescendo.importers.lines import Parse, first_fault, parse_lines
from crescendo.importers.times import MS_NS, epoch_by_digits, whole_number
from crescendo.model.errors import ConfigError
from crescendo.record.manifest import ConnectionRole
from crescendo.record.schema import RECEIVED, SENT, SETTLED, Settlement

SENDER: Final = "sender"
RECEIVER: Final = "receiver"
SUMMARY = "summary"
COUNTED_SENDER, COUNTED_RECEIVER = _COUNTED = ("sender without numbers", "receiver without numbers")
_SENT = re.compile(r"S?[0-9]{1,9},[0-9]{10,19}")  # ids start at 1: a first field with more digits is a time
_RECEIVED = re.compile(r"[0-9]+,[0-9]{10,19},[0-9]{10,19}")
_COUNTED_SENT = re.compile(r"[0-9]{10,19},0")
_COUNTED_RECEIVED = re.compile(r"[0-9]{10,19},[0-9]{10,19}")
_SIZE = re.compile(rb'"(?:body_size|payload_size|body-size)":\s*([0-9]{1,9})\b')
_COLUMNS = ("sender", "seq", "attempt", "intended_ns", "sent_ns", "size")

_ROLES = {SENDER: SENDER, COUNTED_SENDER: SENDER, RECEIVER: RECEIVER, COUNTED_RECEIVER: RECEIVER}

Pair = dict[str, SourceFile]  # role, or the file name of a summary -> file


def kind_of(name: str, head: bytes) -> str | None:
    line = first_line(head)
    kinds = {_SENT: SENDER, _RECEIVED: RECEIVER, _COUNTED_SENT: COUNTED_SENDER, _COUNTED_RECEIVED: COUNTED_RECEIVER}
    for pattern, kind in kinds.items():
        if pattern.fullmatch(line):
            return kind
    return SUMMARY if name.endswith("-summary.json") and line.startswith("{") else None


def read_sources(workspace: Workspace, sources: list[SourceFile], _options: ImportOptions) -> ImportResult:
    pairs = _pairs(sources)
    numbers = {source.number: index for index, pair in enumerate(pairs.values()) for source in pair.values()}
    sizes = {source.number: _size(pair) for pair in pairs.values() for source in pair.values()}
    result = ImportResult(resolution_ns=MS_NS)

    def parsed(kind: str, parse: Parse) -> DataFrame | None:
        """The messages in all files of a kind; None when there is no such file."""
        files = [source for pair in pairs.values() for source in pair.values() if source.kind == kind]
        if not files:
            return None
        lines = parse_lines(workspace, kind, files, parse)
        result.rejects += lines.rejects
        result.records |= lines.lines
        rows = with_counted_seq(lines.rows, [[file.number] for file in files]) if kind in _COUNTED else lines.rows
        return with_connection(rows, numbers, sizes)

    sent: list[DataFrame] = []
    received: list[DataFrame] = []
    if (rows := parsed(SENDER, with_sends)) is not None:
        sent.append(_sent(rows))
        result.frames.append((SETTLED, _settled(rows)))
        result.caveats.append(
            "quiver records the settlement of every 256th message only: most losses count as unacknowledged"
        )
    if (rows := parsed(COUNTED_SENDER, with_counted_sends)) is not None:
        sent.append(_sent(rows))
    if (rows := parsed(RECEIVER, with_receives)) is not None:
        received.append(with_order_flags(received_rows(rows)))
    if (rows := parsed(COUNTED_RECEIVER, with_counted_receives)) is not None:
        received.append(received_rows(rows).withColumn("flags", F.lit(0)))
    if any(source.kind in _COUNTED for pair in pairs.values() for source in pair.values()):
        result.caveats.append(
            "quiver neither numbers messages nor records settlements: a loss is a difference of counts, and which "
            "messages were lost, duplicated or reordered is not known"
        )
    result.frames += [(RECEIVED, frame) for frame in received]
    if unpaired := [numbers[pair[RECEIVER].number] for pair in pairs.values() if SENDER not in pair]:
        sent += [inferred_sent(frame.where(F.col("sender").isin(unpaired))) for frame in received]
        result.caveats.append("where the sender's file is missing, sent messages are inferred from received ones")
    if sent:
        result.frames.append((SENT, reduce(DataFrame.unionByName, (frame.select(*_COLUMNS) for frame in sent))))
    for folder, pair in pairs.items():
        _describe(result, folder, pair, numbers)
    return result


def with_sends(lines: DataFrame) -> DataFrame:
    cells = F.split(F.trim(F.col(TEXT)), ",")
    seq = whole_number(F.regexp_replace(F.get(cells, F.lit(0)), "^S", ""))
    t_ns = epoch_by_digits(F.get(cells, F.lit(1)))
    reason = first_fault(
        (F.size(cells) != 2, "not two columns: message id, time"),
        (seq.isNull(), "the message id is not a whole number"),
        (t_ns.isNull(), "the time is not a time since 1970"),
    )
    return lines.withColumns({REASON: reason, "seq": seq, "t_ns": t_ns, "settles": F.col(TEXT).startswith("S")})


def with_receives(lines: DataFrame) -> DataFrame:
    cells = F.split(F.trim(F.col(TEXT)), ",")
    seq, sent_ns, received_ns = (
        whole_number(F.get(cells, F.lit(0))),
        *(epoch_by_digits(F.get(cells, F.lit(at))) for at in (1, 2)),
    )
    reason = first_fault(
        (F.size(cells) != 3, "not three columns: message id, send time, receive time"),
        (seq.isNull(), "the message id is not a whole number"),
        (sent_ns.isNull(), "the send time is not a time since 1970"),
        (received_ns.isNull(), "the receive time is not a time since 1970"),
    )
    return lines.withColumns({REASON: reason, "seq": seq, "sent_ns": sent_ns, "received_ns": received_ns})


def with_counted_sends(lines: DataFrame) -> DataFrame:
    cells = F.split(F.trim(F.col(TEXT)), ",")
    t_ns = epoch_by_digits(F.get(cells, F.lit(0)))
    reason = first_fault(
        (F.size(cells) != 2, "not two columns: send time, 0"),
        (t_ns.isNull(), "the send time is not a time since 1970"),
    )
    return lines.withColumns({REASON: reason, "t_ns": t_ns, "settles": F.lit(False)})


def with_counted_receives(lines: DataFrame) -> DataFrame:
    cells = F.split(F.trim(F.col(TEXT)), ",")
    sent_ns, received_ns = epoch_by_digits(F.get(cells, F.lit(0))), epoch_by_digits(F.get(cells, F.lit(1)))
    reason = first_fault(
        (F.size(cells) != 2, "not two columns: send time, receive time"),
        (sent_ns.isNull(), "the send time is not a time since 1970"),
        (received_ns.isNull(), "the receive time is not a time since 1970"),
    )
    return lines.withColumns({REASON: reason, "sent_ns": sent_ns, "received_ns": received_ns})


def _sent(rows: DataFrame) -> DataFrame:
    t_ns = F.col("t_ns")
    return rows.where(~F.col("settles")).select(
        F.col("connection").alias("sender"), "seq", F.lit(1).alias("attempt"), t_ns.alias("intended_ns"),
        t_ns.alias("sent_ns"), "size",
    )  # fmt: skip


def _settled(rows: DataFrame) -> DataFrame:
    """One range per settlement; the send time of its message is on another line."""
    sends = rows.where(~F.col("settles")).groupBy("connection", "seq").agg(F.min("t_ns").alias("sent_ns"))
    return (
        rows.where("settles")
        .select("connection", "seq", F.col("t_ns").alias("settled_ns"))
        .join(sends, on=["connection", "seq"], how="inner")
        .select(
            F.col("connection").alias("sender"),
            F.col("seq").alias("first_seq"),
            F.col("seq").alias("last_seq"),
            "sent_ns",
            "settled_ns",
            F.lit(int(Settlement.ACCEPTED)).alias("outcome"),
        )
        .repartition("sender")
        .sortWithinPartitions("sender", "first_seq", "settled_ns")
    )


def _pairs(sources: list[SourceFile]) -> dict[str, Pair]:
    pairs: dict[str, Pair] = {}
    for source in sources:
        pair = pairs.setdefault(source.folder, {})
        role = _ROLES.get(source.kind) or f"{source.kind}-{source.path.name}"
        if role in pair:
            raise ConfigError(
                f"{source.path}: a second {role} file next to {pair[role].path}; give each pair its own directory"
            )
        pair[role] = source
    for pair in pairs.values():
        if len({source.kind in _COUNTED for role, source in pair.items() if role in (SENDER, RECEIVER)}) > 1:
            raise ConfigError(
                f"{pair[SENDER].path}: its messages have numbers and those of {pair[RECEIVER].path} have none, or the "
                "other way round: files of two versions of quiver are not a pair; give each file its own directory"
            )
    return {folder: pair for folder, pair in pairs.items() if pair.keys() & {SENDER, RECEIVER}}


def _size(pair: Pair) -> int:
    """The payload size, from a summary next to the transfers."""
    found = (_SIZE.search(source.head) for kind, source in pair.items() if kind.startswith(SUMMARY))
    return next((int(match[1]) for match in found if match), 0)


def _describe(result: ImportResult, folder: str, pair: Pair, numbers: dict[int, int]) -> None:
    number = numbers[next(iter(pair.values())).number]
    roles: tuple[ConnectionRole, ...] = (SENDER, RECEIVER)
    for role in roles:
        # A sender without a file still has a number; a receiver without a file is left out.
        if role in pair or role == SENDER:
            name = f"{role}-{folder}"
            result.connections.append(connection_record(number, role, name, folder))
            result.peers.append(peer_record(name, role))
    for kind, source in pair.items():
        if kind.startswith(SUMMARY):
            result.records[source.number] = 1
            result.events.append((source.label, "summary", _compact(source.head)))


def _compact(head: bytes) -> str:
    try:
        return msgspec.json.encode(msgspec.json.decode(head)).decode()
    except msgspec.DecodeError:
        return msgspec.json.encode({"text": head.decode("utf-8", "replace")}).decode()


QUIVER = Format(
    name="quiver",
    expected=(
        "transfers of quiver-arrow: sender-transfers.csv (time,0 or id,time) and receiver-transfers.csv "
        "(time,time or id,time,time)"
    ),
    kind_of=kind_of,
    read_sources=read_sources,
)
