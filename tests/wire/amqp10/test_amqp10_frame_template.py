"""Does what is said from memory mean what the scalar codec would have said?"""

from hypothesis import given
from hypothesis import strategies as st

from crescendo.wire.amqp10.connection import Connection
from crescendo.wire.amqp10.frame_template import FrameTemplate
from crescendo.wire.amqp10.frames import decode_frame
from crescendo.wire.amqp10.links import RECEIVER, SENDER
from crescendo.wire.amqp10.performatives import Accepted, Disposition, Flow
from stream_feed import spoken

numbers = st.one_of(st.sampled_from([0, 1, 255, 256, 2**31, 2**32 - 1]), st.integers(0, 2**32 - 1))


@given(numbers, numbers, st.booleans(), st.booleans(), st.integers(0, 65_535))
def test_a_settlement_is_read_as_it_was_meant(first: int, last: int, role: bool, settled: bool, channel: int) -> None:
    saying = FrameTemplate(lambda one, other: Disposition(role, one, other, settled, Accepted()), 2, channel=channel)
    for _ in range(2):
        frame = decode_frame(memoryview(saying.two(first, last)))
        assert frame.performative == Disposition(role, first, last, settled, Accepted())
        assert (frame.channel, len(frame.payload)) == (channel, 0)


@given(st.lists(numbers, min_size=7, max_size=7))
def test_a_flow_is_read_as_it_was_meant(counters: list[int]) -> None:
    saying = FrameTemplate(Flow, 7, channel=0)
    assert decode_frame(memoryview(saying.several(*counters))).performative == Flow(*counters)


def test_every_kind_of_settlement_is_said_as_asked() -> None:
    client = Connection(container_id="client")
    spoken(client)
    for role in (SENDER, RECEIVER, SENDER):
        for settled in (True, False):
            client.settle(7, 70_000, role=role, settled=settled)
            said = decode_frame(memoryview(spoken(client))).performative
            assert said == Disposition(role, 7, 70_000, settled, Accepted())
