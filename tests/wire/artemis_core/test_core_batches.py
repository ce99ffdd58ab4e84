"""Does a batch of Core write the same frames as the scalar codec?"""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core_streams import client_of
from crescendo.wire.artemis_core.acks import encode_acknowledgements
from crescendo.wire.artemis_core.batch import SendBatch, packet_of
from crescendo.wire.artemis_core.frames import encode_frame
from crescendo.wire.artemis_core.packets import Acknowledge, AcknowledgeOne, RoutingType
from stream_feed import take_outgoing


@given(
    st.sampled_from(["q", "a.b", "ü"]),
    st.sampled_from(list(RoutingType)),
    st.sampled_from([0, 1, 32, 256, 4096]),
    st.booleans(),
    st.sampled_from([130, 133, 134, 136]),
    st.sampled_from([0, 9997, 2**31 - 2, 2**31, 2**40]),
    st.integers(1, 4),
    st.sampled_from([0, 1_700_000_000_000]),
)
def test_a_batch_writes_the_bytes_that_the_scalar_codec_writes(
    address: str,
    routing: RoutingType,
    length: int,
    answered: bool,
    version: int,
    first: int,
    count: int,
    expiration_ms: int,
) -> None:
    client = client_of(version)
    options = {
        "producer": 1, "address": address, "routing_type": routing, "response_required": answered, "durable": True,
        "priority": 7, "properties": {"colour": "red"},
    }  # fmt: skip
    batch = SendBatch(packet_of(0, bytes(length), **options), version, capacity=4)
    bodies = np.arange(4 * length, dtype=np.uint32).astype(np.uint8).reshape(4, length)
    batch.bodies[:] = bodies
    for number in range(count):
        client.send(first + number, bodies[number].tobytes(), expiration_ms=expiration_ms, **options)
    expected = take_outgoing(client)
    assert len(expected) == count * batch.frame_length
    client.send_batch(batch, first, count, expiration_ms=expiration_ms)
    assert take_outgoing(client) == expected


@pytest.mark.parametrize("individual", [False, True])
def test_acknowledgements_are_those_of_the_scalar_codec(individual: bool) -> None:
    numbers = [1, 2, 77, 2**40, 2**63 - 1]
    rows = np.frombuffer(b"".join(number.to_bytes(8, "big") for number in numbers), np.uint8).reshape(-1, 8)
    kind = AcknowledgeOne if individual else Acknowledge
    found = encode_acknowledgements(9, rows, version=136, individual=individual, response_required=True)
    assert bytes(found) == b"".join(encode_frame(kind(9, number, True), 136) for number in numbers)
