"""Does the stamp have the 32-byte layout of the design?"""

import struct

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from crescendo.wire.stamp import MAGIC, ONE_STAMP, STAMP, stamps_of

# Section 4 of the design: magic and version u16, sender u16, run tag u32, sequence u64, intended_ns i64, sent_ns i64.
DESIGN = struct.Struct(">HHIQqq")
NAMES = ("magic", "sender", "tag", "seq", "intended_ns", "sent_ns")

fields = st.tuples(
    st.just(MAGIC),
    st.integers(0, 2**16 - 1),
    st.integers(0, 2**32 - 1),
    st.integers(0, 2**64 - 1),
    st.integers(-(2**63), 2**63 - 1),
    st.integers(-(2**63), 2**63 - 1),
)


@given(st.lists(fields, min_size=1, max_size=5), st.integers(0, 20), st.integers(0, 7))
def test_stamps_are_read_in_place(stamps: list[tuple[int, ...]], tail: int, offset: int) -> None:
    """Payloads of any length at any offset in a buffer, as the receive path provides them."""
    size = DESIGN.size + tail
    octets = b"".join(DESIGN.pack(*stamp) + bytes(tail) for stamp in stamps)
    buffer = np.frombuffer(bytes(offset) + octets, np.uint8)
    payloads = buffer[offset:].reshape(len(stamps), size)
    read = stamps_of(payloads)
    assert [tuple(int(row[name]) for name in NAMES) for row in read] == stamps
    assert ONE_STAMP.unpack_from(payloads[0].data) == stamps[0]


@given(fields)
def test_stamps_are_written_through_the_view(stamp: tuple[int, ...]) -> None:
    payloads = np.zeros((2, 40), np.uint8)
    for name, value in zip(NAMES, stamp, strict=True):
        stamps_of(payloads)[name][1] = value
    assert payloads[1, :32].tobytes() == DESIGN.pack(*stamp)
    assert not payloads[0].any()


def test_the_stamp_takes_32_bytes() -> None:
    assert STAMP.itemsize == ONE_STAMP.size == DESIGN.size == 32
