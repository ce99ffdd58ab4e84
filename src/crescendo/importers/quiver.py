"""What did quiver's arrows transfer?

`sender-transfers.csv` has `id,send-time` and, for some messages, `Sid,settle-time`; `receiver-transfers.csv` has
`id,send-time,receive-time`, all since 1970. Numbers begin anew with every sender and a receiver does not say whose they
are, so the files of one directory are one pair. A pair without its sender's file is known by what arrived.
"""

import re
from functools import reduce

import msgspec
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from crescendo.importers.harvest import (
    REASON,
    TEXT,
    Desk,
    Format,
    Harvest,
    Options,
    Source,
    connection,
    first_line,
    peer,
)
from crescendo.importers.lines import first_fault, parse_lines
from crescendo.importers.messages import arrivals, connected, in_order_of_arrival, sent_by
from crescendo.importers.times import MS_NS, epoch, whole
from crescendo.model.errors import ConfigError
from crescendo.record.schema import RECEIVED, SENT, SETTLED, Settlement

SENDER, RECEIVER, SUMMARY = "sender", "receiver", "summary"
_SENT = re.compile(r"S?[0-9]+,[0-9]{10,19}")
_RECEIVED = re.compile(r"[0-9]+,[0-9]{10,19},[0-9]{10,19}")
_SIZE = re.compile(rb'"(?:body_size|payload_size|body-size)":\s*([0-9]{1,9})\b')
_COLUMNS = ("sender", "seq", "attempt", "intended_ns", "sent_ns", "size")

Pair = dict[str, Source]  # kind -> file


def kind_of(name: str, head: bytes) -> str | None:
    line = first_line(head)
    if _SENT.fullmatch(line):
        return SENDER
    if _RECEIVED.fullmatch(line):
        return RECEIVER
    return SUMMARY if name.endswith("-summary.json") and line.startswith("{") else None


def harvest(desk: Desk, sources: list[Source], _options: Options) -> Harvest:
    pairs = _pairs(sources)
    numbers = {source.number: index for index, pair in enumerate(pairs.values()) for source in pair.values()}
    sizes = {source.number: _size(pair) for pair in pairs.values() for source in pair.values()}
    result = Harvest(resolution_ns=MS_NS)
    sent: list[DataFrame] = []
    if senders := [pair[SENDER] for pair in pairs.values() if SENDER in pair]:
        parsed = parse_lines(desk, SENDER, senders, with_sendings)
        rows = connected(parsed.rows, numbers, sizes)
        sent.append(_sent(rows))
        result.frames.append((SETTLED, _settled(rows)))
        result.rejects += parsed.rejects
        result.records |= parsed.lines
        result.caveats.append("quiver notes when every 256th message was settled: most losses count as unacknowledged")
    if receivers := [pair[RECEIVER] for pair in pairs.values() if RECEIVER in pair]:
        parsed = parse_lines(desk, RECEIVER, receivers, with_arrivals)
        received = arrivals(connected(parsed.rows, numbers, sizes))
        result.frames.append((RECEIVED, in_order_of_arrival(received)))
        result.rejects += parsed.rejects
        result.records |= parsed.lines
        if alone := [numbers[pair[RECEIVER].number] for pair in pairs.values() if SENDER not in pair]:
            sent.append(sent_by(received.where(F.col("sender").isin(alone))))
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


def _pairs(sources: list[Source]) -> dict[str, Pair]:
    pairs: dict[str, Pair] = {}
    for source in sources:
        pair = pairs.setdefault(source.folder, {})
        kind = f"{source.kind}-{source.path.name}" if source.kind == SUMMARY else source.kind
        if kind in pair:
            raise ConfigError(
                f"{source.path}: a second {kind} file beside {pair[kind].path}; give each pair a directory of its own"
            )
        pair[kind] = source
    return {folder: pair for folder, pair in pairs.items() if pair.keys() & {SENDER, RECEIVER}}


def _size(pair: Pair) -> int:
    """The payload, from a summary beside the transfers."""
    found = (_SIZE.search(source.head) for kind, source in pair.items() if kind.startswith(SUMMARY))
    return next((int(match[1]) for match in found if match), 0)


def _describe(result: Harvest, folder: str, pair: Pair, numbers: dict[int, int]) -> None:
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
    expected="transfers of quiver-arrow: sender-transfers.csv (id,time) and receiver-transfers.csv (id,time,time)",
    kind_of=kind_of,
    harvest=harvest,
)
