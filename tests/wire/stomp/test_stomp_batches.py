"""What takes the batch path of STOMP, and does a batch write the same frames as the scalar codec?"""

import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crescendo.wire.stomp.batch import SendBatch, receipt_id
from crescendo.wire.stomp.escaping import Version
from crescendo.wire.stomp.events import Deliveries, Receipts
from stomp_streams import Script, Shape, client_of, listen, raw
from stream_feed import events_of, take_outgoing


def test_runs_take_the_batch_path_and_odd_frames_do_not() -> None:
    script = Script()
    for number in range(1000, 1500):
        script.message(Shape(), number, bytes(256))
    script.message(Shape(redelivered=True), 1500, bytes(256))
    batched = {True: 0, False: 0}
    for event in events_of(client_of(), bytes(script.octets)):
        assert isinstance(event, Deliveries)
        batched[event.batched] += len(event.ids)
    assert batched == {True: 500, False: 1}


def test_numbers_that_grow_a_digit_break_a_run_only_once() -> None:
    script = Script()
    for number in range(90, 190):
        script.message(Shape(timed=True), number, bytes(64))
    events = list(events_of(client_of(), bytes(script.octets)))
    assert [len(event.ids) for event in events if isinstance(event, Deliveries)] == [10, 90]


def test_runs_of_receipts_become_numbers() -> None:
    script = Script()
    for number in [*range(7, 300), *range(400, 500)]:
        script.receipt(receipt_id(number))
    (event,) = events_of(client_of(), bytes(script.octets))
    assert isinstance(event, Receipts)
    assert event.numbers is not None
    assert event.numbers.tolist() == [*range(7, 300), *range(400, 500)]


@pytest.mark.parametrize("odd", ["1234567890123456789", "12:4", "/", "٣", ""])
def test_receipt_ids_that_are_not_numbers_stay_texts(odd: str) -> None:
    script = Script()
    for _ in range(5):
        script.receipt(odd)
    events = list(events_of(client_of("1.0"), bytes(script.octets)))
    assert [name for event in events if isinstance(event, Receipts) for name in event.ids] == [odd] * 5
    assert all(event.numbers is None for event in events if isinstance(event, Receipts))


def test_messages_that_all_differ_take_linear_time() -> None:
    """Equal lengths, different heads: comparing all the rest for each of them would be quadratic."""

    def cost_s(count: int) -> float:
        octets = b"".join(Shape(subscription=str(number % 2)).message(1000, bytes(32))[0] for number in range(count))
        times_s = []
        for _ in range(2):
            client = client_of()
            start_s = time.process_time()
            assert len(listen(client, octets)) == count
            times_s.append(time.process_time() - start_s)
        return min(times_s)

    assert cost_s(8000) < 8 * cost_s(2000)


@given(
    st.sampled_from(["/queue/q", "/topic/a:b", "/queue/0000000000000000", "/queue/ü\\"]),
    st.sampled_from([0, 1, 32, 256, 4096]),
    st.booleans(),
    st.sampled_from(list(Version)),
    st.integers(0, 10**16 - 5) | st.sampled_from([0, 9997, 99_999_998, 10**16 - 4]),
    st.integers(1, 4),
)
def test_a_batch_writes_the_bytes_that_the_scalar_codec_writes(
    destination: str, body_length: int, receipts: bool, version: Version, first: int, count: int
) -> None:
    batch = SendBatch(
        destination, body_length=body_length, receipts=receipts, version=version, persistent=True, capacity=4
    )  # fmt: skip
    bodies = np.arange(4 * body_length, dtype=np.uint32).astype(np.uint8).reshape(4, body_length)
    batch.bodies[:] = bodies
    client = client_of(version.value)
    for number in range(count):
        receipt = receipt_id(first + number) if receipts else None
        client.send(destination, bodies[number].tobytes(), persistent=True, receipt=receipt)
    expected = take_outgoing(client)
    client.send_batch(batch, first, count)
    assert take_outgoing(client) == expected


def test_a_batch_matches_the_specification() -> None:
    batch = SendBatch("/queue/q", body_length=3, receipts=True, version=Version.V1_2, capacity=2)
    batch.bodies[:] = np.frombuffer(b"a\0b", np.uint8)
    lines = ["content-length:3", "destination:/queue/q"]
    expected = [raw("SEND", [*lines, f"receipt:{text}"], b"a\0b") for text in ("0000000000000099", "0000000000000100")]
    assert bytes(batch.frames(99, 2)) == b"".join(expected)
