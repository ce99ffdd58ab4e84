"""Does a frame from a template equal the frame of the scalar codec?"""

from hypothesis import given
from hypothesis import strategies as st

from crescendo.wire.amqp10.connection import Connection
from crescendo.wire.amqp10.frame_template import FrameTemplate
from crescendo.wire.amqp10.frames import decode_frame
from crescendo.wire.amqp10.links import RECEIVER, SENDER
from crescendo.wire.amqp10.performatives import Accepted, Disposition, Flow
from stream_feed import take_outgoing

numbers = st.one_of(st.sampled_from([0, 1, 255, 256, 2**31, 2**32 - 1]), st.integers(0, 2**32 - 1))


@given(numbers, numbers, st.booleans(), st.booleans(), st.integers(0, 65_535))
def test_a_settlement_from_a_template_is_decoded_unchanged(
    first: int, last: int, role: bool, settled: bool, channel: int
) -> None:
    template = FrameTemplate(lambda one, other: Disposition(role, one, other, settled, Accepted()), 2, channel=channel)
    for _ in range(2):
        frame = decode_frame(memoryview(template.fill_two(first, last)))
        assert frame.performative == Disposition(role, first, last, settled, Accepted())
        assert (frame.channel, len(frame.payload)) == (channel, 0)


@given(st.lists(numbers, min_size=7, max_size=7))
def test_a_flow_from_a_template_is_decoded_unchanged(counters: list[int]) -> None:
    template = FrameTemplate(Flow, 7, channel=0)
    assert decode_frame(memoryview(template.fill(*counters))).performative == Flow(*counters)


def test_every_kind_of_settlement_is_sent_as_requested() -> None:
    client = Connection(container_id="client")
    take_outgoing(client)
    for role in (SENDER, RECEIVER, SENDER):
        for settled in (True, False):
            client.settle(7, 70_000, role=role, settled=settled)
            sent = decode_frame(memoryview(take_outgoing(client))).performative
            assert sent == Disposition(role, 7, 70_000, settled, Accepted())
