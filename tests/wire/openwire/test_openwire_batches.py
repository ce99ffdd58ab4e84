"""Does the batch path of OpenWire mean exactly what the scalar path means?

The same bytes in any chunking must yield the same messages with and without batching, and a batch must write the same
frames as the scalar codec.
"""

import time

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from crescendo.model.errors import PeerError
from crescendo.wire.openwire.acks import AckEncoder
from crescendo.wire.openwire.batch import MessageBatch, message_of
from crescendo.wire.openwire.events import Deliveries
from crescendo.wire.openwire.frames import decode_frame, encode_frame
from crescendo.wire.openwire.identifiers import (
    ConsumerId,
    LocalTransactionId,
    MessageId,
    ProducerId,
    QueueDestination,
    TopicDestination,
)
from crescendo.wire.openwire.messages import AckType, MessageAck
from crescendo.wire.openwire.structures import Throwable, encode_nested
from crescendo.wire.responses import Responses
from openwire_streams import Script, Shape, client_of, flattened, listen, scripts
from stream_feed import events_of, take_outgoing

relaxed = settings(
    max_examples=40,
    suppress_health_check=[HealthCheck.data_too_large, HealthCheck.too_slow, HealthCheck.large_base_example],
)


@relaxed
@given(scripts(), st.lists(st.integers(0, 40_000), max_size=12), st.booleans())
def test_any_chunking_yields_the_same_messages_on_both_paths(script: Script, cuts: list[int], batching: bool) -> None:
    assert listen(client_of(batching=batching), bytes(script.octets), cuts) == script.expected


@settings(relaxed, max_examples=10)
@given(scripts(), st.booleans())
def test_byte_by_byte_yields_the_same_messages(script: Script, batching: bool) -> None:
    data = bytes(script.octets[:6000])
    found = listen(client_of(batching=batching), data, range(len(data)))
    assert found == script.expected[: len(found)]
    assert len(found) >= len(script.expected) or len(data) == 6000


@settings(relaxed, max_examples=80)
@given(scripts(), st.lists(st.tuples(st.integers(0, 2**20), st.integers(0, 255)), min_size=1, max_size=3))
def test_both_paths_agree_on_damaged_runs(script: Script, damage: list[tuple[int, int]]) -> None:
    """Whichever bytes of a run are damaged, both paths see the same messages and end with the same error."""
    for at, value in damage:
        script.octets[at % len(script.octets)] = value
    results = []
    for batching in (True, False):
        entries: list[object] = []
        try:
            for event in events_of(client_of(batching=batching), bytes(script.octets)):
                entries += flattened(event)
        except PeerError as err:
            entries.append(str(err))
        results.append(entries)
    assert results[0] == results[1]


def batched(script: Script) -> dict[bool, int]:
    counts = {True: 0, False: 0}
    for event in events_of(client_of(), bytes(script.octets)):
        assert isinstance(event, Deliveries)
        counts[event.batched] += len(event.ids)
    return counts


def test_runs_take_the_batch_path_and_odd_frames_do_not() -> None:
    script = Script()
    for number in range(1000, 1500):
        script.message(Shape(), number, bytes(256))
    script.message(Shape(redeliveries=1), 1500, bytes(256))
    assert batched(script) == {True: 500, False: 1}


def test_messages_of_many_senders_and_sizes_take_the_batch_path() -> None:
    script = Script()
    for number in range(400):
        properties = b"\0\0\0\1\0\1a\6" + number.to_bytes(8, "big")
        shape = Shape(sender=f"s{number % 7:05d}", priority=number % 10, properties=properties)
        script.message(shape, number, bytes(100 + number))
    assert batched(script) == {True: 399, False: 1}
    assert listen(client_of(), bytes(script.octets)) == script.expected


def test_a_few_kinds_of_messages_in_turn_take_the_batch_path() -> None:
    script = Script()
    for number in range(200):
        script.message(Shape(redeliveries=number % 2, consumer=1 + number // 2 % 2), number, bytes(64))
    assert batched(script) == {True: 196, False: 4}


def test_runs_of_responses_become_numbers() -> None:
    script = Script()
    for number in [*range(7, 300), *range(400, 500)]:
        script.response(number)
    (event,) = events_of(client_of(), bytes(script.octets))
    assert isinstance(event, Responses)
    assert event.numbers.tolist() == [*range(7, 300), *range(400, 500)]


@pytest.mark.parametrize("kind", ["messages", "responses"])
def test_frames_that_all_differ_take_linear_time(kind: str) -> None:
    """Comparing all the rest for each of them would be quadratic."""

    def cost_s(count: int) -> float:
        script = Script()
        for number in range(count):
            if kind == "messages":
                script.message(Shape(consumer=1 + number % 7), number, bytes(32))
            else:
                script.response(number if number % 2 else -number)
        times_s = []
        for _ in range(2):
            client = client_of()
            start_s = time.process_time()
            assert len(listen(client, bytes(script.octets))) == count
            times_s.append(time.process_time() - start_s)
        return min(times_s)

    assert cost_s(1200) < 8 * cost_s(300)


@given(
    st.sampled_from([QueueDestination("q"), TopicDestination("a.b"), QueueDestination("ü")]),
    st.sampled_from([0, 1, 32, 256, 4096]),
    st.booleans(),
    st.sampled_from([1, 2, 3, 9, 10, 12]),
    st.sampled_from([0, 9997, 2**31 - 2, 2**31, 2**40]),
    st.integers(1, 4),
    st.sampled_from([0, 1_700_000_000_000]),
)
def test_a_batch_writes_the_bytes_that_the_scalar_codec_writes(
    destination: QueueDestination, length: int, answered: bool, version: int, first: int, count: int, expiration_ms: int
) -> None:
    client = client_of(version)
    options = {"response_required": answered, "persistent": True, "priority": 7, "properties": {"colour": "red"}}
    template = message_of(0, bytes(length), producer=client.producer_id(1), destination=destination, **options)
    batch = MessageBatch(template, version, capacity=4)
    bodies = np.arange(4 * length, dtype=np.uint32).astype(np.uint8).reshape(4, length)
    batch.bodies[:] = bodies
    for number in range(count):
        client.send(
            first + number, bodies[number].tobytes(), producer=1, destination=destination,
            expiration_ms=expiration_ms, **options,
        )  # fmt: skip
    expected = take_outgoing(client)
    client.send_batch(batch, first, count, expiration_ms=expiration_ms)
    assert take_outgoing(client) == expected


@pytest.mark.parametrize("version", [1, 6, 7, 10, 12])
@pytest.mark.parametrize("transaction", [None, LocalTransactionId(3)])
def test_acknowledgements_are_those_of_the_scalar_codec(version: int, transaction: LocalTransactionId | None) -> None:
    names = [MessageId(None, ProducerId(b"s", 1, 1), number, number) for number in range(5)]
    encoded = [encode_nested(name, version) for name in names]
    consumer = ConsumerId("c", 1, 1)
    acks = AckEncoder(
        version, destination=encode_nested(QueueDestination("q"), version), consumer=consumer,
        ack_type=AckType.INDIVIDUAL, transaction=transaction, command_id=-9, response_required=True,
    )  # fmt: skip

    def by_the_scalar_codec(first: MessageId | None, last: MessageId, count: int) -> bytes:
        ack = MessageAck(-9, True, QueueDestination("q"), transaction, consumer, AckType.INDIVIDUAL, first, last, count)
        return encode_frame(ack, version)

    assert bytes(acks.span(encoded[0], encoded[4], 5)) == by_the_scalar_codec(names[0], names[4], 5)
    rows = np.frombuffer(b"".join(encoded), np.uint8).reshape(5, -1)
    assert bytes(acks.each(rows)) == b"".join(by_the_scalar_codec(None, name, 1) for name in names)
    poisoned = encode_frame(MessageAck(poison_cause=Throwable("c", "m")), version)
    cause = decode_frame(memoryview(poisoned), version)
    assert cause == MessageAck(poison_cause=Throwable("c", "m") if version >= 7 else None)
