"""Does the batch path mean exactly what the scalar path means?"""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crescendo.model.errors import PeerError
from crescendo.wire.mqtt.batch import PublishBatch, acknowledgements
from crescendo.wire.mqtt.encoding import encode
from crescendo.wire.mqtt.events import Acknowledged, Deliveries
from crescendo.wire.mqtt.packet_types import V3, V5, PacketType
from crescendo.wire.mqtt.packets import Ack, Publish
from crescendo.wire.mqtt.properties import Property
from mqtt_streams import PUBACK, PUBREL, Script, Shape, ack, client_of, listen, publish, scripts
from stream_feed import events_of, take_outgoing

both = pytest.mark.parametrize("version", [V3, V5])


@settings(max_examples=100)
@given(script=scripts(), cuts=st.lists(st.integers(0, 20_000), max_size=30), batching=st.booleans())
def test_any_chunking_yields_what_was_written(script: Script, cuts: list[int], batching: bool) -> None:
    connection = client_of(script.version, batching=batching, unacknowledged=40)
    assert listen(connection, bytes(script.octets), cuts) == script.expected


@settings(max_examples=60)
@given(script=scripts())
def test_batch_and_scalar_path_answer_with_the_same_bytes(script: Script) -> None:
    batched = client_of(script.version, unacknowledged=40)
    scalar = client_of(script.version, unacknowledged=40, batching=False)
    listen(batched, bytes(script.octets))
    listen(scalar, bytes(script.octets))
    assert take_outgoing(batched) == take_outgoing(scalar)


def test_byte_by_byte_equals_all_at_once() -> None:
    script = Script(V5)
    for qos in (0, 1, 2):
        for _ in range(3):
            script.message(Shape(qos=qos), 200)
    octets = bytes(script.octets)
    assert listen(client_of(V5), octets, range(len(octets))) == script.expected


@both
@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("size", [0, 32, 100, 256, 20_000])
def test_a_batch_of_messages_is_the_same_bytes_as_single_ones(version: int, qos: int, size: int) -> None:
    properties = {Property.MESSAGE_EXPIRY_S: 60} if version == V5 else {}
    batch = PublishBatch(
        topic="perf/größe", body_length=size, qos=qos, version=version, retain=True, properties=properties, capacity=40
    )
    bodies = [bytes((number,)) * size for number in range(40)]
    for row, body in zip(batch.bodies, bodies, strict=True):
        row[:] = memoryview(body)
    first = 65_520  # the identifiers wrap around in the middle
    expected = b"".join(
        encode(Publish("perf/größe", body, qos, True, False, (first + n) % 65_535 + 1, properties), version)
        for n, body in enumerate(bodies[:30])
    )
    assert bytes(batch.packets(first, 30)) == expected


@both
@pytest.mark.parametrize("kind", [PacketType.PUBACK, PacketType.PUBREC, PacketType.PUBREL, PacketType.PUBCOMP])
def test_tiled_acknowledgements_are_the_same_bytes_as_single_ones(version: int, kind: PacketType) -> None:
    ids = np.array([1, 7, 65_535, 256, 255], np.uint16)
    assert acknowledgements(kind, ids) == b"".join(encode(Ack(kind, n), version) for n in ids.tolist())


@both
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_run_of_equal_messages_is_one_event(version: int, qos: int) -> None:
    script = Script(version)
    for _ in range(500):
        script.message(Shape(qos=qos), 256)
    events = list(events_of(client_of(version), bytes(script.octets)))
    assert [len(event.ids) for event in events if isinstance(event, Deliveries)] == [500]
    assert isinstance(events[0], Deliveries)
    assert events[0].batched


@both
def test_a_run_of_acknowledgements_is_one_event(version: int) -> None:
    connection = client_of(version, unacknowledged=500)
    stream = b"".join(ack(PUBACK, number) for number in range(1, 501))
    assert list(events_of(connection, stream)) == [Acknowledged([(0, 499)], 0, True)]
    assert connection.window.in_flight == 0


def test_without_batching_nothing_is_batched() -> None:
    script = Script(V3)
    for _ in range(5):
        script.message(Shape(qos=1), 64)
    events = list(events_of(client_of(V3, batching=False), bytes(script.octets)))
    assert [event.batched for event in events if isinstance(event, Deliveries)] == [False] * 5


@both
def test_a_zero_identifier_in_the_middle_of_a_run_is_the_peers_fault(version: int) -> None:
    extra = b"\x00" if version == V5 else b""
    stream = b"".join(publish("t", b"x" * 40, qos=1, number=number, extra=extra) for number in (1, 2, 0, 4))
    with pytest.raises(PeerError, match="identifier is 0"):
        list(events_of(client_of(version), stream))
    with pytest.raises(PeerError, match="identifier is 0"):
        list(events_of(client_of(version, unacknowledged=9), b"".join(ack(PUBACK, number) for number in (1, 0, 2))))


@pytest.mark.parametrize(
    "stream",
    [
        b"".join(publish("t", b"", qos=2, number=1) for _ in range(10_000)),  # the same message repeated
        b"".join(publish("t", b"", qos=2, number=1 + number % 2 * (number // 2)) for number in range(10_000)),
        b"".join(ack(PUBREL, 1 + number % 2) for number in range(15_000)),  # none of these is held
        b"".join(publish("t", bytes(number % 3)) for number in range(15_000)),  # every message breaks the run
    ],
    ids=["repeated", "every-other-repeated", "unknown-releases", "broken-runs"],
)
def test_work_grows_with_the_bytes_and_not_with_their_square(stream: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    from crescendo.wire.mqtt import batch

    compared = 0
    count_matches = batch.Pattern.matches

    def counted(self: batch.Pattern, rows: batch.Octets) -> int:
        nonlocal compared
        matching = count_matches(self, rows)
        compared += min(len(rows), 16 + 16 * matching)
        return matching

    monkeypatch.setattr(batch.Pattern, "matches", counted)
    list(events_of(client_of(V3), stream))
    assert compared < 40 * 15_000
