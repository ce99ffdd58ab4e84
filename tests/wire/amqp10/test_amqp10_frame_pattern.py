"""Do frames that match a pattern mean the same as when they are decoded?"""

import struct

from hypothesis import given
from hypothesis import strategies as st

from amqp10_streams import attached, flow, new_client, prologue
from crescendo.wire.amqp10.events import Begun
from crescendo.wire.amqp10.frame_pattern import FramePattern, PatternMemory
from stream_feed import events_of, take_outgoing

numbers = st.one_of(st.integers(0, 3), st.integers(250, 300), st.integers(0, 2**32 - 1))
choices = st.sampled_from([None, False, True])
flows = st.lists(
    st.builds(
        flow, st.integers(0, 3), numbers, handle=st.one_of(st.none(), st.just(0)), delivery_count=numbers,
        credit=numbers, drain=choices, echo=choices,
    ),
    max_size=12,
)  # fmt: skip


@given(flows)
def test_flows_grant_the_same_credit_and_get_the_same_answers(stream: list[bytes]) -> None:
    results = []
    for batching in (True, False):
        client = new_client(batching=batching)
        for event in events_of(client, prologue(())):
            if isinstance(event, Begun):
                client.attach_sender("out", "q", settled=False)
        take_outgoing(client)
        list(events_of(client, attached("out")))
        received = []
        for octets in stream:
            events = list(events_of(client, octets))
            received.append((events, client.sendable(0), take_outgoing(client)))
        results.append(received)
    assert results[0] == results[1]


@given(st.binary(min_size=8, max_size=40), st.data())
def test_a_pattern_reads_its_numbers_and_nothing_else(octets: bytes, data: st.DataObject) -> None:
    first = data.draw(st.integers(0, len(octets) - 4))
    fields = [(first, data.draw(st.sampled_from([1, 4])))]
    if first + 8 <= len(octets) and data.draw(st.booleans()):
        fields.append((data.draw(st.integers(first + 4, len(octets) - 4)), 4))
    pattern = FramePattern(octets, fields)
    values = tuple(data.draw(numbers) % 256**width for _, width in fields)
    other = bytearray(octets)
    for (offset, width), value in zip(fields, values, strict=True):
        struct.pack_into({1: ">B", 4: ">I"}[width], other, offset, value)
    assert pattern.read(bytes(other)) == values
    assert pattern.read(bytes(other) + b"x") is None
    fixed = [at for at in range(len(octets)) if not any(offset <= at < offset + width for offset, width in fields)]
    if fixed:
        other[data.draw(st.sampled_from(fixed))] ^= data.draw(st.integers(1, 255))
        assert pattern.read(bytes(other)) is None


def test_pattern_memory_is_bounded() -> None:
    memory: PatternMemory[int] = PatternMemory()
    for length in range(1000):
        memory.learn(length, length)
        assert memory.recall(length) == length
    assert sum(memory.recall(length) is not None for length in range(1000)) <= 8
