"""Does the batch path behave exactly like the scalar path?

The same bytes in any chunks must yield the same messages with and without batching, and a batch must write the same
frames as the scalar codec.
"""

import time

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from amqp10_streams import LINKS, Script, Shape, attach, detach, flattened, new_client, prologue, receive, scripts
from crescendo.model.errors import PeerError
from crescendo.wire.amqp10.batch import TransferBatch
from crescendo.wire.amqp10.events import Begun, Deliveries
from crescendo.wire.amqp10.frames import encode_frame, encode_message
from crescendo.wire.amqp10.links import RECEIVER
from crescendo.wire.amqp10.performatives import Transfer
from stream_feed import events_of, take_outgoing

relaxed = settings(max_examples=60, suppress_health_check=[HealthCheck.data_too_large])


@relaxed
@given(scripts(), st.lists(st.integers(0, 20_000), max_size=12), st.booleans())
def test_any_chunking_yields_the_same_messages_on_both_paths(script: Script, cuts: list[int], batching: bool) -> None:
    data = prologue() + bytes(script.octets)
    assert receive(new_client(batching=batching), data, cuts) == script.expected


@settings(relaxed, max_examples=15)
@given(scripts(), st.booleans())
def test_byte_by_byte_yields_the_same_messages(script: Script, batching: bool) -> None:
    data = prologue() + bytes(script.octets[:6000])
    whole = receive(new_client(batching=False), data)
    assert whole == script.expected[: len(whole)]
    assert receive(new_client(batching=batching), data, range(len(data))) == whole


@settings(relaxed, max_examples=30)
@given(scripts(), st.integers(1, 60))
def test_an_incomplete_frame_waits(script: Script, held_back: int) -> None:
    data = prologue() + bytes(script.octets)
    client = new_client()
    early = receive(client, data[:-held_back])
    late = [entry for event in events_of(client, data[-held_back:]) for entry in flattened(event)]
    if len(data) - held_back >= len(prologue()):
        assert early + late == script.expected


def test_runs_take_the_batch_path_and_odd_frames_do_not() -> None:
    script = Script(first_id=1000)
    for _ in range(500):
        script.message(Shape(), 0, 256)
    script.message(Shape(footer=True), 0, 256)
    client = new_client()
    batched = {True: 0, False: 0}
    for event in events_of(client, prologue() + bytes(script.octets)):
        if isinstance(event, Begun):
            for name in LINKS:
                client.attach_receiver(name, "q", settled=False)
        if isinstance(event, Deliveries):
            batched[event.batched] += len(event.ids)
    assert batched == {True: 500, False: 1}


def test_a_link_attached_again_in_the_other_direction_is_not_the_old_one() -> None:
    script = Script()
    for _ in range(3):
        script.message(Shape(wide_id=True), 0, 64)
    answers = {}
    for batching in (True, False):
        client = new_client(batching=batching)
        assert receive(client, prologue() + bytes(script.octets)) == script.expected
        list(events_of(client, detach(0)))
        client.attach_sender("third", "q", settled=False)
        list(events_of(client, attach("third", 0, receives=True)))
        with pytest.raises(PeerError) as refused:
            list(events_of(client, bytes(script.octets)))
        answers[batching] = str(refused.value)
    assert answers[True] == answers[False]


def test_a_link_lost_in_the_middle_of_a_message_does_not_switch_batching_off() -> None:
    client = new_client()
    script = Script()
    shape = Shape(wide_id=True)
    receive(client, prologue() + shape.transfer(0, 0, b"\x00\x53\x75", more=True) + detach(0))
    for _ in range(10):
        script.message(shape, 1, 64)
    frame_length = len(script.octets) // 10
    events = list(events_of(client, bytes(script.octets), range(0, len(script.octets), frame_length)))
    assert [event.batched for event in events if isinstance(event, Deliveries)] == [False] + [True] * 9


def test_messages_that_all_differ_take_linear_time() -> None:
    """Equal lengths, different heads: comparing all remaining bytes for each message would be quadratic."""

    def cost_s(count: int) -> float:
        script = Script(first_id=1000)
        for number in range(count):
            script.message(Shape(wide_id=True, settled=bool(number % 2)), 0, 32)
        data = prologue() + bytes(script.octets)
        times_s = []
        for _ in range(2):
            client = new_client()
            start_s = time.process_time()
            assert len(receive(client, data)) == count
            times_s.append(time.process_time() - start_s)
        return min(times_s)

    assert cost_s(5000) < 6 * cost_s(1250)


@given(
    st.integers(0, 300),
    st.sampled_from([8, 32, 247, 248, 255, 256, 4096]),
    st.booleans(),
    st.integers(256, 2**32 - 5) | st.sampled_from([256, 2**32 - 4]),
)
def test_a_batch_writes_the_bytes_that_the_scalar_codec_writes(
    handle: int, body_length: int, settled: bool, first_id: int
) -> None:
    batch = TransferBatch(handle=handle, body_length=body_length, settled=settled, capacity=4)
    bodies = np.arange(4 * body_length, dtype=np.uint32).astype(np.uint8).reshape(4, body_length)
    batch.bodies[:] = bodies
    expected = b"".join(
        encode_frame(
            Transfer(handle, first_id + number, (first_id + number).to_bytes(4, "big"), 0, settled),
            encode_message(bodies[number].tobytes()),
        )
        for number in range(4)
    )
    assert bytes(batch.frames(first_id, 4)) == expected
    assert bytes(batch.frames(first_id, 1)) == expected[: batch.frame_length]


@given(st.integers(0, 400), st.booleans(), st.sampled_from([8, 256]))
def test_small_ids_of_full_width_mean_the_same(first_id: int, settled: bool, body_length: int) -> None:
    batch = TransferBatch(handle=1, body_length=body_length, settled=settled, capacity=4)
    batch.bodies[:] = np.arange(4, dtype=np.uint8)[:, None]
    expected = [
        ("message", 1, first_id + number, settled, bytes([number]) * body_length, False) for number in range(4)
    ]  # fmt: skip
    assert receive(new_client(), prologue() + bytes(batch.frames(first_id, 4))) == expected


def test_ids_and_tags_wrap_at_two_to_the_32() -> None:
    batch = TransferBatch(handle=0, body_length=32, settled=True, capacity=4)
    batch.bodies[:] = 7
    received = receive(new_client(), prologue() + bytes(batch.frames(2**32 - 2, 4)))
    assert [entry[2] for entry in received] == [2**32 - 2, 2**32 - 1, 0, 1]


@pytest.mark.parametrize("handle", [0, 255, 0x7EADBEE1, 0x7EADBEE2, 2**32 - 1])
def test_no_handle_can_be_mistaken_for_an_id(handle: int) -> None:
    batch = TransferBatch(handle=handle, body_length=32, settled=False, capacity=1)
    batch.bodies[:] = 0
    expected = encode_frame(Transfer(handle, 70_000, (70_000).to_bytes(4, "big"), 0, False), encode_message(bytes(32)))
    assert bytes(batch.frames(70_000, 1)) == expected


def test_a_queued_batch_is_written_unchanged() -> None:
    client = new_client()
    for event in events_of(client, prologue(())):
        if isinstance(event, Begun):
            client.attach_sender("out", "q", settled=True)
    take_outgoing(client)
    assert client.links[0].role is not RECEIVER
    batch = TransferBatch(handle=0, body_length=32, settled=True)
    client.transfer(batch, 0, 3)
    client.transfer_one(0, bytes(32), settled=True)
    assert client.deliveries_sent == client.links[0].delivery_count == 4
    frames = take_outgoing(client)
    assert frames[: 3 * batch.frame_length] == bytes(batch.frames(0, 3))
