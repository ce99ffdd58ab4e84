"""How many messages did a Maestro peer count in each second?

`sender.dat` and `receiver.dat` are big-endian: a header of 20 bytes (name, file version, product version, role), then
20 bytes per second (metadata, messages, microseconds since 1970). Header and records have the same length, so a record
is found by its number. An incomplete record, or a negative count, is rejected. The files contain counts only, no
messages.
"""

import struct

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from crescendo.importers.format import LINE, REASON, SOURCE, TEXT, ImportResult, SourceFile, Workspace, peer_record
from crescendo.importers.lines import small_frame
from crescendo.importers.times import SECOND_NS, US_NS
from crescendo.record.schema import RATES

DAT = "dat"
_RECORD_BYTES = 20
_NAME = b" maestro"
_FILE_VERSION = 1
_ROLES = {1: "sender", 2: "receiver"}
_LAST_US = 9_223_372_036_000_000
_GLOB_PATHS = "__globPaths__"


def is_dat(head: bytes) -> bool:
    return (
        head.startswith(_NAME)
        and len(head) >= _RECORD_BYTES
        and struct.unpack_from(">i", head, 8)[0] == _FILE_VERSION
        and role_of(head) is not None
    )


def role_of(head: bytes) -> str | None:
    return _ROLES.get(struct.unpack_from(">i", head, 16)[0])


def read_rates(workspace: Workspace, sources: list[SourceFile]) -> ImportResult:
    names = [
        {SOURCE: source.number, "peer": source.label, "role": role_of(source.head) or ""} for source in sources
    ]  # fmt: skip
    records = _records(workspace, sources).join(
        F.broadcast(small_frame(workspace.spark, f"{SOURCE} INT, peer STRING, role STRING", names)),
        on=SOURCE,
        how="inner",
    )
    faulty = F.col(REASON).isNotNull()
    return ImportResult(
        resolution_ns=SECOND_NS,
        frames=[(RATES, records.where(~faulty).withColumn("t_ns", F.col("us") * US_NS))],
        rejects=[records.where(faulty).select(SOURCE, LINE, REASON, F.lower(F.hex("record")).alias(TEXT))],
        records={source.number: _count(source) for source in sources},
        peers=[peer_record(source.label, role_of(source.head) or "") for source in sources],
        caveats=[
            "Maestro's .dat files contain counts per second, no messages: there is neither a ledger nor a latency"
        ],
    )


def _records(workspace: Workspace, sources: list[SourceFile]) -> DataFrame:
    """One row per record; LINE is its number, from 1."""
    files = (
        workspace.spark.read.format("binaryFile")
        .option(_GLOB_PATHS, "false")
        .load([str(source.staged) for source in sources])
        .select(F.substring_index("path", "/", -1).alias("name"), "content")
    )
    # The last record may be incomplete; a file with only a header has none.
    last = F.ceil(F.length("content") / F.lit(_RECORD_BYTES)).cast("int") - 1
    numbers = F.when(last >= 1, F.sequence(F.lit(1), last)).otherwise(F.array().cast("array<int>"))
    # Cut first, then explode: otherwise the whole file would be copied for each of its records.
    cut = F.transform(numbers, _record)
    records = files.select(F.substring("name", 1, 6).cast("int").alias(SOURCE), F.inline(cut))
    messages, us = _integer(5), _integer(13)
    reason = F.coalesce(
        F.when(F.length("record") != _RECORD_BYTES, F.lit("the file ends within this record")),
        F.when(messages < 0, F.lit("the number of messages is negative")),
        F.when((us <= 0) | (us > _LAST_US), F.lit("the time is not microseconds since 1970")),
    )
    return records.withColumns({REASON: reason, "messages": messages, "us": us})


def _record(number: Column) -> Column:
    octets = F.substring(F.col("content"), number * _RECORD_BYTES + 1, F.lit(_RECORD_BYTES))
    return F.struct(number.cast("long").alias(LINE), octets.alias("record"))


def _integer(start: int) -> Column:
    """Eight bytes as a signed number: from hexadecimal to unsigned, then the sign is corrected."""
    octets = F.when(F.length("record") == _RECORD_BYTES, F.hex(F.substring(F.col("record"), F.lit(start), F.lit(8))))
    high = F.conv(F.substring(octets, 1, 8), 16, 10).cast("long")
    low = F.conv(F.substring(octets, 9, 8), 16, 10).cast("long")
    signed = F.when(high >= 2**31, high - 2**32).otherwise(high)
    return signed * F.lit(2**32) + low


def _count(source: SourceFile) -> int:
    return max(-(-source.staged.stat().st_size // _RECORD_BYTES) - 1, 0)
