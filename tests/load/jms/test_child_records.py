"""Are records and commands of a JVM read and written exactly, whatever the pieces they arrive in?"""

import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crescendo.load.jms.child_records import (
    CLOSED,
    RECEIVED,
    RECORD_BYTES,
    SENT,
    Closing,
    RecordReader,
    due_command,
    hello_command,
)
from crescendo.model.errors import PeerError


def record(kind: int, index: int, size: int, *words: int) -> bytes:
    return struct.pack(">BBHi6q", kind, 0, index, size, *words, *[0] * (6 - len(words)))


def reason(index: int, text: str) -> bytes:
    octets = text.encode()
    return record(CLOSED, index, len(octets)) + octets + bytes(-len(octets) % RECORD_BYTES)


def read(pieces: list[bytes]) -> list[object]:
    """Every record as (type, index, first word), and every reason."""
    reader, found = RecordReader(), []
    for piece in pieces:
        for item in reader.feed(piece):
            if isinstance(item, Closing):
                found.append(item)
            else:
                found += zip(item["type"].tolist(), item["index"].tolist(), item["words"][:, 0].tolist(), strict=True)
    return found


@given(st.lists(st.integers(0, 400), max_size=12))
def test_any_chunking_yields_the_same_records(cuts: list[int]) -> None:
    long = "the broker says no, " * 7
    stream = b"".join(
        [
            record(SENT, 0, 256, 7),
            record(RECEIVED, 3, 40, -1),
            reason(3, long),
            reason(0, ""),
            record(SENT, 1, 9, 2**62),
        ]
    )
    wanted = [(SENT, 0, 7), (RECEIVED, 3, -1), Closing(3, long), Closing(0, ""), (SENT, 1, 2**62)]
    ends = sorted({min(cut, len(stream)) for cut in cuts} | {len(stream)})
    assert read([stream[begin:end] for begin, end in zip([0, *ends], ends, strict=False)]) == wanted


@pytest.mark.parametrize("octets", [record(0, 0, 0), record(11, 0, 0), record(CLOSED, 0, 2001), record(CLOSED, 0, -1)])
def test_what_is_not_a_record_is_refused(octets: bytes) -> None:
    with pytest.raises(PeerError, match="the JVM of the JMS client sent"):
        read([octets])


def test_due_times_and_settings_are_written_as_the_jvm_reads_them() -> None:
    due = due_command(2, 10, np.array([5, 6], np.int64), 256, 2)
    assert due == struct.pack(">BBHIq", 2, 0, 2, 2, 10) + struct.pack(">qiqi", 5, 256, 6, 256)
    hello = hello_command("receiver", 7, [{"é": "x"}])
    assert hello == b"CRJM" + struct.pack(">HHIHHI", 1, 1, 7, 1, 1, 2) + "é".encode() + struct.pack(">I", 1) + b"x"
