"""Do many settlements mean the same one by one and merged?"""

import itertools
import time
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from amqp10_streams import attached, boolean, disposition, flow, frame, new_client, prologue, uint
from crescendo.wire.amqp10.connection import Connection
from crescendo.wire.amqp10.events import Begun, Settled
from stream_feed import events_of

ACCEPTED, REJECTED = 0x24, 0x25


def single(first: int, *, settled: bool, state: int) -> bytes:
    """A disposition without `last`, which is optional for one delivery."""
    fields = boolean(True) + uint(first) + b"\x40" + boolean(settled) + b"\x00\x53" + bytes((state,)) + b"\x45"
    return frame(0x15, fields, 5)


Settlements = list[tuple[int, bool, str]]  # delivery id, whether it is settled, and its outcome


@st.composite
def streams(draw: st.DrawFn) -> tuple[bytes, list[Settlements]]:
    """Groups of settlements with the same outcome, and the expected result for each delivery of a group."""
    octets, expected = b"", []
    number = draw(st.sampled_from([0, 250, 70_000, 2**32 - 20]))
    for _ in range(draw(st.integers(1, 5))):
        settled, state = draw(st.booleans()), draw(st.sampled_from([ACCEPTED, ACCEPTED, REJECTED]))
        width = draw(st.integers(0, 4))  # 0: without `last`
        starts = []
        for _ in range(draw(st.integers(1, 40))):
            starts.append(number)
            number += max(width, 1) + draw(st.sampled_from([0, 0, 0, 0, 0, 3]))
        name = "Accepted" if state == ACCEPTED else "Rejected"
        group = []
        for start in draw(st.permutations(starts)) if draw(st.booleans()) else starts:
            first, last = start & 0xFFFF_FFFF, (start + width - 1) & 0xFFFF_FFFF
            octets += (
                disposition(first, last, settled=settled, state=state)
                if width
                else single(first, settled=settled, state=state)
            )
            group += [((first + n) & 0xFFFF_FFFF, settled, name) for n in range(max(width, 1))]
        expected.append(group)
    return octets, expected


def settlements(data: bytes, *, batching: bool, cut: int = 0) -> Settlements:
    client = new_client(batching=batching)
    list(events_of(client, prologue(())))
    return [settlement for event in events_of(client, data, [cut]) for settlement in deliveries_of(event)]


def deliveries_of(event: object) -> Settlements:
    """One entry per delivery."""
    if not isinstance(event, Settled):
        return []
    return [
        ((first + n) & 0xFFFF_FFFF, event.settled, type(event.state).__name__)
        for first, last in event.ranges
        for n in range(((last - first) & 0xFFFF_FFFF) + 1)
    ]


@settings(max_examples=80)
@given(streams(), st.integers(0, 2000))
def test_both_paths_settle_the_same_deliveries(stream: tuple[bytes, list[Settlements]], cut: int) -> None:
    octets, expected = stream
    assert settlements(octets, batching=False, cut=cut) == [one for group in expected for one in group]
    found = iter(settlements(octets, batching=True, cut=cut))
    for group in expected:  # only settlements with the same outcome may be reordered
        assert sorted(itertools.islice(found, len(group))) == sorted(group)
    assert not list(found)


@pytest.mark.parametrize("step", [1, -1, 7])
def test_a_thousand_single_settlements_are_one_event(step: int) -> None:
    client = new_client()
    list(events_of(client, prologue(())))
    numbers = sorted(range(1000, 2000), key=lambda number: number * step % 1000)
    data = b"".join(disposition(number, number) for number in numbers)
    assert [event.ranges for event in events_of(client, data) if isinstance(event, Settled)] == [[(1000, 1999)]]


def test_settling_twice_is_settling_once() -> None:
    client = new_client()
    list(events_of(client, prologue(())))
    data = b"".join(
        disposition(first, last) for first, last in [(505, 509), (501, 503), (502, 506), (512, 512), (505, 509)]
    )
    assert [event.ranges for event in events_of(client, data) if isinstance(event, Settled)] == [
        [(501, 509), (512, 512)]
    ]


def test_settlements_that_all_differ_take_linear_time() -> None:
    def cost_s(count: int) -> float:
        data = b"".join(disposition(number, number, state=(ACCEPTED, REJECTED)[number % 2]) for number in range(count))
        client = new_client()
        list(events_of(client, prologue(())))
        begun_s = time.process_time()
        assert len(list(events_of(client, data))) == count
        return time.process_time() - begun_s

    small, large = min(cost_s(1000) for _ in range(3)), min(cost_s(8000) for _ in range(2))
    assert large < 8 * small * 4


frames_of_a_router = st.lists(
    st.one_of(
        st.tuples(st.integers(0, 3), st.booleans(), st.sampled_from([ACCEPTED, ACCEPTED, ACCEPTED, REJECTED])),
        st.integers(0, 2**32 - 1),
    ),
    max_size=40,
)


@given(frames_of_a_router, st.sampled_from([300, 70_000, 2**32 - 20]), st.lists(st.integers(0, 2000), max_size=5))
def test_merged_settlements_equal_the_events(
    steps: list[tuple[int, bool, int] | int], number: int, cuts: list[int]
) -> None:
    """Settlements, consecutive or not, with flows between them."""
    octets = b""
    for step in steps:
        if isinstance(step, int):
            octets += flow(0, 1000, handle=0, delivery_count=0, credit=step)
        else:
            width, gap, state = step
            number += gap
            first, last = number & 0xFFFF_FFFF, (number + max(width, 1) - 1) & 0xFFFF_FFFF
            octets += disposition(first, last, state=state) if width else single(first, settled=True, state=state)
            number += max(width, 1)
    results = []
    for batching in (True, False):
        client = new_client(batching=batching)
        for event in events_of(client, prologue(())):
            if isinstance(event, Begun):
                client.attach_sender("out", "q", settled=False)
        list(events_of(client, attached("out")))
        received: Settlements = []
        for event in settlements_and_events(client, octets, cuts) if batching else events_of(client, octets):
            received += deliveries_of(event)
        results.append((received, client.sendable(0)))
    assert results[0] == results[1]


def settlements_and_events(client: Connection, data: bytes, cuts: list[int]) -> Iterator[object]:
    """The events of a caller that takes merged settlements first."""
    for start, end in itertools.pairwise(sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})):
        client.receive_buffer()[: end - start] = data[start:end]
        client.received(end - start)
        yield from client.take_settlements()
        while (event := client.next_event()) is not None:
            yield event


def test_many_small_consecutive_settlements_become_one() -> None:
    client = new_client()
    list(events_of(client, prologue(())))
    client.attach_sender("out", "q", settled=False)
    list(events_of(client, attached("out")))
    frames = [
        flow(0, 1000, handle=0, delivery_count=0, credit=7) + disposition(first, first + 299)
        for first in range(1000, 3400, 300)
    ]
    list(events_of(client, frames[0] + single(1300, settled=True, state=ACCEPTED)))
    found = list(settlements_and_events(client, b"".join(frames[2:]), []))
    assert [event.ranges for event in found if isinstance(event, Settled)] == [[(1600, 3399)]]
    assert client.sendable(0) == 7
