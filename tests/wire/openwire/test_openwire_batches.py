"""Does a batch of OpenWire write the same frames as the scalar codec?"""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crescendo.wire.openwire.acks import AckEncoder
from crescendo.wire.openwire.batch import MessageBatch, message_of
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
from openwire_streams import client_of
from stream_feed import take_outgoing


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
