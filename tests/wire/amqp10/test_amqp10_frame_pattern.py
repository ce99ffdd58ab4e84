"""Do frames that are recognised by their shape mean what they mean when they are read?"""

import struct

from hypothesis import given
from hypothesis import strategies as st

from amqp10_streams import attached, client_of, flow, prologue
from crescendo.wire.amqp10.events import Begun
from crescendo.wire.amqp10.frame_pattern import FramePattern, PatternMemory
from stream_feed import events_of, spoken

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
def test_flows_give_the_same_leave_and_get_the_same_answers(stream: list[bytes]) -> None:
    told = []
    for batching in (True, False):
        client = client_of(batching=batching)
        for event in events_of(client, prologue(())):
            if isinstance(event, Begun):
                client.attach_sender("out", "q", settled=False)
        spoken(client)
        list(events_of(client, attached("out")))
        heard = []
        for octets in stream:
            events = list(events_of(client, octets))
            heard.append((events, client.sendable(0), spoken(client)))
        told.append(heard)
    assert told[0] == told[1]


@given(st.binary(min_size=8, max_size=40), st.data())
def test_a_shape_reads_its_numbers_and_nothing_else(octets: bytes, data: st.DataObject) -> None:
    first = data.draw(st.integers(0, len(octets) - 4))
    places = [(first, data.draw(st.sampled_from([1, 4])))]
    if first + 8 <= len(octets) and data.draw(st.booleans()):
        places.append((data.draw(st.integers(first + 4, len(octets) - 4)), 4))
    shape = FramePattern(octets, places)
    values = tuple(data.draw(numbers) % 256**width for _, width in places)
    other = bytearray(octets)
    for (place, width), value in zip(places, values, strict=True):
        struct.pack_into({1: ">B", 4: ">I"}[width], other, place, value)
    assert shape.read(bytes(other)) == values
    assert shape.read(bytes(other) + b"x") is None
    fixed = [at for at in range(len(octets)) if not any(place <= at < place + width for place, width in places)]
    if fixed:
        other[data.draw(st.sampled_from(fixed))] ^= data.draw(st.integers(1, 255))
        assert shape.read(bytes(other)) is None


def test_little_is_remembered() -> None:
    memory: PatternMemory[int] = PatternMemory()
    for length in range(1000):
        memory.learn(length, length)
        assert memory.recall(length) == length
    assert sum(memory.recall(length) is not None for length in range(1000)) <= 8
