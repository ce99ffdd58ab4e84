"""What did quiver's arrows transfer?

Since June 2022 `sender-transfers.csv` has `send-time,0` and `receiver-transfers.csv` has `send-time,receive-time`, all
since 1970: messages have no numbers, so they are counted. Before, they had `id,send-time`, for some messages
`Sid,settle-time`, and `id,send-time,receive-time`. Numbers begin anew with every sender and a receiver does not say
whose they are, so the files of one directory are one pair. A pair without its sender's file is known by what arrived.
"""

import re
from functools import reduce

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
    connection,
    first_line,
    peer,
)
from crescendo.importers.lines import Parse, first_fault, parse_lines
from crescendo.importers.messages import arrivals, connected, counted, in_order_of_arrival, sent_by
from crescendo.importers.times import MS_NS, epoch, whole
from crescendo.model.errors import ConfigError
from crescendo.record.schema import RECEIVED, SENT, SETTLED, Settlement

SENDER, RECEIVER, SUMMARY = "sender", "receiver", "summary"
COUNTED_SENDER, COUNTED_RECEIVER = _COUNTED = ("sender without numbers", "receiver without numbers")
_SENT = re.compile(r"S?[0-9]{1,9},[0-9]{10,19}")  # ids begin with 1: a first one of more digits is a time
_RECEIVED = re.compile(r"[0-9]+,[0-9]{10,19},[0-9]{10,19}")
_COUNTED_SENT = re.compile(r"[0-9]{10,19},0")
_COUNTED_RECEIVED = re.compile(r"[0-9]{10,19},[0-9]{10,19}")
_SIZE = re.compile(rb'"(?:body_size|payload_size|body-size)":\s*([0-9]{1,9})\b')
_COLUMNS = ("sender", "seq", "attempt", "intended_ns", "sent_ns", "size")

_ROLES = {SENDER: SENDER, COUNTED_SENDER: SENDER, RECEIVER: RECEIVER, COUNTED_RECEIVER: RECEIVER}

Pair = dict[str, SourceFile]  # role, or the name of a summary -> file


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
        """The messages in all files of a kind, None when there is no such file."""
        files = [source for pair in pairs.values() for source in pair.values() if source.kind == kind]
        if not files:
            return None
        lines = parse_lines(workspace, kind, files, parse)
        result.rejects += lines.rejects
        result.records |= lines.lines
        rows = counted(lines.rows, [[file.number] for file in files]) if kind in _COUNTED else lines.rows
        return connected(rows, numbers, sizes)

    sent: list[DataFrame] = []
    received: list[DataFrame] = []
    if (rows := parsed(SENDER, with_sendings)) is not None:
        sent.append(_sent(rows))
        result.frames.append((SETTLED, _settled(rows)))
        result.caveats.append("quiver notes when every 256th message was settled: most losses count as unacknowledged")
    if (rows := parsed(COUNTED_SENDER, with_counted_sendings)) is not None:
        sent.append(_sent(rows))
    if (rows := parsed(RECEIVER, with_arrivals)) is not None:
        received.append(in_order_of_arrival(arrivals(rows)))
    if (rows := parsed(COUNTED_RECEIVER, with_counted_arrivals)) is not None:
        received.append(arrivals(rows).withColumn("flags", F.lit(0)))
    if any(source.kind in _COUNTED for pair in pairs.values() for source in pair.values()):
        result.caveats.append(
            "quiver gives messages no numbers and does not note settlements: a loss is a difference of counts, and "
            "which messages were lost, repeated or overtaken is not known"
        )
    result.frames += [(RECEIVED, frame) for frame in received]
    if alone := [numbers[pair[RECEIVER].number] for pair in pairs.values() if SENDER not in pair]:
        sent += [sent_by(frame.where(F.col("sender").isin(alone))) for frame in received]
        result.caveats.append("where the sender's file is missing, what was sent follows from what arrived")
    if sent:
        result.frames.append((SENT, reduce(DataFrame.unionByName, (frame.select(*_COLUMNS) for frame in sent))))
    for folder, pair in pairs.items():
        _describe(result, folder, pair, numbers)
    return result


def with_sendings(lines: DataFrame) -> DataFrame:
    cells = F.split(F.trim(F.col(TEXT)), ",")
    seq = whole(F.regexp_replace(F.get(cells, F.lit(0)), "^S", ""))
    t_ns = epoch(F.get(cells, F.lit(1)))
    reason = first_fault(
        (F.size(cells) != 2, "not two columns: message id, time"),
        (seq.isNull(), "the message id is not a whole number"),
        (t_ns.isNull(), "the time is no moment since 1970"),
    )
    return lines.withColumns({REASON: reason, "seq": seq, "t_ns": t_ns, "settles": F.col(TEXT).startswith("S")})


def with_arrivals(lines: DataFrame) -> DataFrame:
    cells = F.split(F.trim(F.col(TEXT)), ",")
    seq, sent_ns, received_ns = whole(F.get(cells, F.lit(0))), *(epoch(F.get(cells, F.lit(at))) for at in (1, 2))
    reason = first_fault(
        (F.size(cells) != 3, "not three columns: message id, send time, receive time"),
        (seq.isNull(), "the message id is not a whole number"),
        (sent_ns.isNull(), "the send time is no moment since 1970"),
        (received_ns.isNull(), "the receive time is no moment since 1970"),
    )
    return lines.withColumns({REASON: reason, "seq": seq, "sent_ns": sent_ns, "received_ns": received_ns})


def with_counted_sendings(lines: DataFrame) -> DataFrame:
    cells = F.split(F.trim(F.col(TEXT)), ",")
    t_ns = epoch(F.get(cells, F.lit(0)))
    reason = first_fault(
        (F.size(cells) != 2, "not two columns: send time, 0"),
        (t_ns.isNull(), "the send time is no moment since 1970"),
    )
    return lines.withColumns({REASON: reason, "t_ns": t_ns, "settles": F.lit(False)})


def with_counted_arrivals(lines: DataFrame) -> DataFrame:
    cells = F.split(F.trim(F.col(TEXT)), ",")
    sent_ns, received_ns = epoch(F.get(cells, F.lit(0))), epoch(F.get(cells, F.lit(1)))
    reason = first_fault(
        (F.size(cells) != 2, "not two columns: send time, receive time"),
        (sent_ns.isNull(), "the send time is no moment since 1970"),
        (received_ns.isNull(), "the receive time is no moment since 1970"),
    )
    return lines.withColumns({REASON: reason, "sent_ns": sent_ns, "received_ns": received_ns})


def _sent(rows: DataFrame) -> DataFrame:
    t_ns = F.col("t_ns")
    return rows.where(~F.col("settles")).select(
        F.col("connection").alias("sender"), "seq", F.lit(1).alias("attempt"), t_ns.alias("intended_ns"),
        t_ns.alias("sent_ns"), "size",
    )  # fmt: skip


def _settled(rows: DataFrame) -> DataFrame:
    """One range a settlement; when its message was sent stands on another line."""
    sendings = rows.where(~F.col("settles")).groupBy("connection", "seq").agg(F.min("t_ns").alias("sent_ns"))
    return (
        rows.where("settles")
        .select("connection", "seq", F.col("t_ns").alias("settled_ns"))
        .join(sendings, on=["connection", "seq"], how="inner")
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
                f"{source.path}: a second {role} file beside {pair[role].path}; give each pair a directory of its own"
            )
        pair[role] = source
    for pair in pairs.values():
        if len({source.kind in _COUNTED for role, source in pair.items() if role in (SENDER, RECEIVER)}) > 1:
            raise ConfigError(
                f"{pair[SENDER].path}: its messages have numbers and those of {pair[RECEIVER].path} have none, or the "
                "other way round: two versions of quiver do not make a pair; give each file a directory of its own"
            )
    return {folder: pair for folder, pair in pairs.items() if pair.keys() & {SENDER, RECEIVER}}


def _size(pair: Pair) -> int:
    """The payload, from a summary beside the transfers."""
    found = (_SIZE.search(source.head) for kind, source in pair.items() if kind.startswith(SUMMARY))
    return next((int(match[1]) for match in found if match), 0)


def _describe(result: ImportResult, folder: str, pair: Pair, numbers: dict[int, int]) -> None:
    number = numbers[next(iter(pair.values())).number]
    for role in (SENDER, RECEIVER):
        # Without a file of its own a sender still has a number, a receiver is owed nothing.
        if role in pair or role == SENDER:
            name = f"{role}-{folder}"
            result.connections.append(connection(number, role, name, folder))
            result.peers.append(peer(name, role))
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
