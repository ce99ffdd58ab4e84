"""What takes the batch path of OpenWire and Core, and at which cost? Their brokers vary messages in the same ways."""

import time
from collections import Counter
from types import ModuleType
from typing import Any

import pytest

import core_streams
import openwire_streams
from crescendo.wire.responses import Responses
from stream_feed import events_of

STREAMS = {"openwire": openwire_streams, "core": core_streams}
pytestmark = pytest.mark.parametrize("streams", STREAMS.values(), ids=STREAMS)


def batched(streams: ModuleType, script: Any) -> Counter[bool]:
    counts: Counter[bool] = Counter()
    for event in events_of(streams.client_of(), bytes(script.octets)):
        assert isinstance(event, streams.Deliveries)
        counts[event.batched] += len(event.ids)
    return counts


def test_runs_take_the_batch_path_and_odd_frames_do_not(streams: ModuleType) -> None:
    script = streams.Script()
    for number in range(1000, 1500):
        script.message(streams.Shape(), number, bytes(256))
    for number, (shape, body) in enumerate(streams.ODD, 1500):
        script.message(shape, number, body)
    assert batched(streams, script) == {True: 500, False: len(streams.ODD)}


def test_messages_of_many_senders_and_sizes_take_the_batch_path(streams: ModuleType) -> None:
    script = streams.Script()
    for number in range(400):
        script.message(streams.varied(number), number, bytes(100 + number))
    assert batched(streams, script) == {True: 399, False: 1}
    assert streams.listen(streams.client_of(), bytes(script.octets)) == script.expected


def test_a_few_kinds_of_messages_in_turn_take_the_batch_path(streams: ModuleType) -> None:
    script = streams.Script()
    for number in range(200):
        script.message(streams.in_turn(number), number, bytes(64))
    assert batched(streams, script) == {True: 196, False: 4}


def test_runs_of_responses_become_numbers(streams: ModuleType) -> None:
    script = streams.Script()
    for number in [*range(7, 300), *range(400, 500)]:
        script.response(number)
    (event,) = events_of(streams.client_of(), bytes(script.octets))
    assert isinstance(event, Responses)
    assert event.numbers.tolist() == [*range(7, 300), *range(400, 500)]


@pytest.mark.parametrize("kind", ["messages", "responses"])
def test_frames_that_all_differ_take_linear_time(kind: str, streams: ModuleType) -> None:
    """Comparing all the rest for each of them would be quadratic."""

    def cost_s(count: int) -> float:
        script = streams.Script()
        for number in range(count):
            if kind == "messages":
                script.message(streams.Shape(consumer=1 + number % 7), number, bytes(32))
            else:
                streams.answer_in_turn(script, number)
        times_s = []
        for _ in range(5):  # the best: others may use the core
            client = streams.client_of()
            start_s = time.process_time()
            assert len(streams.listen(client, bytes(script.octets))) == count
            times_s.append(time.process_time() - start_s)
        return min(times_s)

    assert cost_s(1200) < 8 * cost_s(300)
