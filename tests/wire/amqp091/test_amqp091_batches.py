"""Does the batch path behave exactly like the scalar path?

The same bytes in any chunks must yield the same messages and confirms with and without batching, and a batch must write
the same bytes as the scalar codec.
"""

import itertools
import time

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from amqp091_streams import (
    CHANNELS,
    HEARTBEAT,
    PUBLISH,
    SHAPES,
    Script,
    Shape,
    ack,
    close,
    flattened,
    frame,
    nack,
    new_client,
    prologue,
    receive,
    scripts,
)
from crescendo.model.errors import PeerError
from crescendo.wire.amqp091.batch import PublishBatch
from crescendo.wire.amqp091.connection import Connection
from crescendo.wire.amqp091.events import Confirmed, Deliveries
from crescendo.wire.amqp091.frames import encode_content
from crescendo.wire.amqp091.methods import BasicPublish
from crescendo.wire.amqp091.properties import Properties
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
    data = prologue() + bytes(script.octets[:5000])
    whole = receive(new_client(batching=False), data)
    assert whole == script.expected[: len(whole)]
    assert receive(new_client(batching=batching), data, range(len(data))) == whole


@settings(relaxed, max_examples=30)
@given(scripts(), st.integers(1, 60))
def test_an_incomplete_message_waits(script: Script, held_back: int) -> None:
    data = bytes(script.octets)
    client = new_client()
    early = receive(client, prologue() + data[: max(len(data) - held_back, 0)])
    late = [entry for event in events_of(client, data[max(len(data) - held_back, 0) :]) for entry in flattened(event)]
    assert early + late == script.expected


def test_runs_take_the_batch_path_and_odd_messages_do_not() -> None:
    script = Script()
    for _ in range(500):
        script.message(Shape(), 1, 256)
    script.fragmented(Shape(), 1, 256, 100)
    batched = {True: 0, False: 0}
    for event in events_of(new_client(), prologue() + bytes(script.octets)):
        if isinstance(event, Deliveries):
            batched[event.batched] += len(event.tags)
    assert batched == {True: 500, False: 1}


def test_alternating_messages_of_two_channels_are_kept_apart() -> None:
    script = Script()
    for number in range(20):
        script.message(SHAPES[number % 2], CHANNELS[number % 2], 64)
    assert receive(new_client(), prologue() + bytes(script.octets)) == script.expected


def test_interleaved_frames_of_two_channels_are_kept_apart() -> None:
    shape = Shape()
    body = bytes(range(64))
    first = [shape.deliver(1, 1), shape.header(1, 64), frame(3, 1, body)]
    second = [shape.deliver(2, 1), shape.header(2, 64), frame(3, 2, body)]
    data = b"".join(octets for pair in zip(first, second, strict=True) for octets in pair)
    received = receive(new_client(), prologue() + data, range(len(prologue()), len(prologue() + data)))
    assert received == [("message", channel, 1, body, False, "perf") for channel in (1, 2)]


def test_messages_on_a_closed_channel_are_refused_on_both_paths() -> None:
    script = Script()
    for _ in range(3):
        script.message(Shape(), 1, 64)
    for batching in (True, False):
        client = new_client(batching=batching)
        assert receive(client, prologue() + bytes(script.octets)) == script.expected
        list(events_of(client, close(404, "NOT_FOUND", channel=1)))
        with pytest.raises(PeerError, match="channel 1, which is not open"):
            list(events_of(client, bytes(script.octets)))


def test_a_run_with_one_wrong_end_octet_ends_there_on_both_paths() -> None:
    script = Script()
    for _ in range(40):
        script.message(Shape(), 1, 64)
    octets = script.octets
    octets[len(octets) * 30 // 40 - 1] = 0xCD
    for batching in (True, False):
        client = new_client(batching=batching)
        received: list[list[object]] = []
        with pytest.raises(PeerError, match="0xcd"):
            received.extend(flattened(event) for event in events_of(client, prologue() + bytes(octets)))
        assert list(itertools.chain.from_iterable(received)) == script.expected[:29]


def test_messages_that_all_differ_take_linear_time() -> None:
    """Equal lengths, different heads: comparing all remaining bytes for each message would be quadratic."""

    def cost_s(count: int) -> float:
        script = Script()
        for number in range(count):
            script.message(SHAPES[number % 2], 1, 32)
        data = prologue() + bytes(script.octets)
        times_s = []
        for _ in range(2):
            client = new_client()
            start_s = time.process_time()
            assert len(receive(client, data)) == count
            times_s.append(time.process_time() - start_s)
        return min(times_s)

    assert cost_s(4000) < 6 * cost_s(1000)


def test_a_body_in_frames_of_one_byte_takes_linear_time() -> None:
    def cost_s(size: int) -> float:
        script = Script()
        script.fragmented(Shape(), 1, size, 1)
        data = prologue() + bytes(script.octets)
        start_s = time.process_time()
        assert receive(new_client(), data, range(0, len(data), 50)) == script.expected
        return time.process_time() - start_s

    assert min(cost_s(8000), cost_s(8000)) < 8 * min(cost_s(2000), cost_s(2000))


# -- confirms --------------------------------------------------------------------------------------------------------


@relaxed
@given(
    st.lists(st.tuples(st.integers(1, 9), st.booleans(), st.booleans()), max_size=40),
    st.lists(st.integers(0, 5000), max_size=8),
    st.booleans(),
)
def test_confirms_mean_the_same_on_both_paths(
    steps: list[tuple[int, bool, bool]], cuts: list[int], batching: bool
) -> None:
    """The model is a set of all unconfirmed numbers."""
    waiting = set(range(1, 400))
    octets, expected = bytearray(), []
    position = 0
    for ahead, multiple, accepted in steps:
        position = min(waiting) - 1 + ahead if waiting else position
        if position not in waiting:
            continue
        settled = sorted(n for n in waiting if n <= position) if multiple else [position]
        waiting -= set(settled)
        octets += (ack if accepted else nack)(1, position, multiple=multiple)
        expected += [("confirmed", 1, n, accepted) for n in settled]
    assert receive(new_client(batching=batching, published=399), prologue() + bytes(octets), cuts) == expected


def test_a_thousand_single_confirms_are_one_event() -> None:
    octets = b"".join(ack(1, tag) for tag in range(1, 1001))
    events = [event for event in events_of(new_client(), prologue() + octets) if isinstance(event, Confirmed)]
    assert events == [Confirmed(1, [(1, 1000)], True)]


@pytest.mark.parametrize("batching", [True, False])
@pytest.mark.parametrize(
    "octets",
    [
        ack(1, 11),
        ack(1, 11, multiple=True),
        ack(1, 0),
        ack(1, 3) + ack(1, 3),
        ack(1, 5, multiple=True) + ack(1, 2),
        ack(1, 2**64 - 1) + ack(1, 0),
        nack(1, 11),
        ack(2, 1),
    ],
    ids=["unknown", "unknown-multiple", "zero", "twice", "late", "around", "nack", "unrequested"],
)
def test_an_invalid_confirm_is_the_peers_fault(octets: bytes, batching: bool) -> None:
    with pytest.raises(PeerError, match="confirm"):
        receive(new_client(batching=batching, published=10), prologue() + octets)


def test_confirms_in_the_worst_order_take_linear_time() -> None:
    def cost_s(count: int) -> float:
        evens = b"".join(ack(1, tag) for tag in range(2, count + 1, 2))
        odds = b"".join(ack(1, tag, multiple=True) for tag in range(1, count + 1, 2))
        client = new_client(published=count)
        start_s = time.process_time()
        assert len(receive(client, prologue() + evens + odds)) == count
        return time.process_time() - start_s

    assert min(cost_s(8000), cost_s(8000)) < 8 * min(cost_s(2000), cost_s(2000))


# -- writing ---------------------------------------------------------------------------------------------------------

properties_of_ours = st.builds(
    Properties,
    delivery_mode=st.sampled_from([None, 1, 2]),
    priority=st.none() | st.integers(0, 9),
    expiration=st.none() | st.integers(0, 10**6).map(str),
)


@given(
    st.integers(1, 65_535),
    st.sampled_from(["", "amq.topic"]),
    st.text(max_size=20),
    st.sampled_from([0, 1, 8, 32, 256, 4000]),
    st.booleans(),
    properties_of_ours,
)
def test_a_batch_writes_the_bytes_that_the_scalar_codec_writes(
    channel: int, exchange: str, routing_key: str, size: int, mandatory: bool, properties: Properties
) -> None:
    batch = PublishBatch(
        exchange=exchange, routing_key=routing_key, body_length=size, channel=channel, mandatory=mandatory,
        properties=properties, capacity=3,
    )  # fmt: skip
    bodies = np.arange(3 * size, dtype=np.uint32).astype(np.uint8).reshape(3, size)
    batch.bodies[:] = bodies
    method = BasicPublish(0, exchange, routing_key, mandatory)
    expected = b"".join(encode_content(channel, method, properties, row.tobytes(), 4096) for row in bodies)
    assert bytes(batch.frames(3)) == expected
    assert bytes(batch.frames(2)) == expected[: 2 * batch.unit_length]
    assert size < 256 or batch.largest_frame == size + 8


@pytest.mark.parametrize("batching", [True, False])
def test_a_server_reads_what_a_batch_writes(batching: bool) -> None:
    client, server = Connection(), Connection(server=True, batching=batching)
    for _ in range(4):
        list(events_of(server, take_outgoing(client)))
        list(events_of(client, take_outgoing(server)))
    client.open_channel(1)
    list(events_of(server, take_outgoing(client)))
    list(events_of(client, take_outgoing(server)))
    batch = PublishBatch(exchange="", routing_key="perf", body_length=64)
    batch.bodies[:] = np.arange(batch.capacity, dtype=np.uint32).astype(np.uint8)[:, None]
    client.publish_batch(batch, 100)
    client.publish(1, PUBLISH, bytes(200_000))
    received = receive(server, take_outgoing(client))
    assert [entry[2] for entry in received] == list(range(1, 102))
    assert [entry[3] for entry in received] == [bytes([n]) * 64 for n in range(100)] + [bytes(200_000)]


def test_heartbeats_within_a_run_are_not_messages() -> None:
    script = Script()
    for _ in range(10):
        script.message(Shape(), 1, 64)
        script.add_ignored(HEARTBEAT)
    assert receive(new_client(), prologue() + bytes(script.octets)) == script.expected
