"""Do many settlements mean the same one by one and taken together?"""

import itertools
import time

import pytest
from amqp10_streams import boolean, client_of, disposition, frame, prologue, uint
from feeding import events_of
from hypothesis import given, settings
from hypothesis import strategies as st

from crescendo.wire.amqp10.events import Settled

ACCEPTED, REJECTED = 0x24, 0x25


def single(first: int, *, settled: bool, state: int) -> bytes:
    """A disposition that leaves out where it ends, as for one delivery it may."""
    fields = boolean(True) + uint(first) + b"\x40" + boolean(settled) + b"\x00\x53" + bytes((state,)) + b"\x45"
    return frame(0x15, fields, 5)


Settlements = list[tuple[int, bool, str]]  # a delivery, whether it is settled, and how


@st.composite
def streams(draw: st.DrawFn) -> tuple[bytes, list[Settlements]]:
    """Settlements of which many are alike, and what each group of these means for each delivery."""
    octets, meant = b"", []
    number = draw(st.sampled_from([0, 250, 70_000, 2**32 - 20]))
    for _ in range(draw(st.integers(1, 5))):
        settled, state = draw(st.booleans()), draw(st.sampled_from([ACCEPTED, ACCEPTED, REJECTED]))
        width = draw(st.integers(0, 4))  # 0: leave out where it ends
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
        meant.append(group)
    return octets, meant


def settlements(data: bytes, *, batching: bool, cut: int = 0) -> Settlements:
    client = client_of(batching=batching)
    list(events_of(client, prologue(())))
    events = events_of(client, data, [cut])
    return [
        ((first + n) & 0xFFFF_FFFF, event.settled, type(event.state).__name__)
        for event in events
        if isinstance(event, Settled)
        for first, last in event.stretches
        for n in range(((last - first) & 0xFFFF_FFFF) + 1)
    ]


@settings(max_examples=80)
@given(streams(), st.integers(0, 2000))
def test_both_paths_settle_the_same_deliveries(stream: tuple[bytes, list[Settlements]], cut: int) -> None:
    octets, meant = stream
    assert settlements(octets, batching=False, cut=cut) == [one for group in meant for one in group]
    found = iter(settlements(octets, batching=True, cut=cut))
    for group in meant:  # what is alike may change places, and nothing else
        assert sorted(itertools.islice(found, len(group))) == sorted(group)
    assert not list(found)


@pytest.mark.parametrize("step", [1, -1, 7])
def test_a_thousand_single_settlements_are_one_event(step: int) -> None:
    client = client_of()
    list(events_of(client, prologue(())))
    numbers = sorted(range(1000, 2000), key=lambda number: number * step % 1000)
    data = b"".join(disposition(number, number) for number in numbers)
    assert [event.stretches for event in events_of(client, data) if isinstance(event, Settled)] == [[(1000, 1999)]]


def test_settling_twice_is_settling_once() -> None:
    client = client_of()
    list(events_of(client, prologue(())))
    data = b"".join(
        disposition(first, last) for first, last in [(505, 509), (501, 503), (502, 506), (512, 512), (505, 509)]
    )
    assert [event.stretches for event in events_of(client, data) if isinstance(event, Settled)] == [
        [(501, 509), (512, 512)]
    ]


def test_settlements_that_are_never_alike_take_linear_time() -> None:
    def cost_s(count: int) -> float:
        data = b"".join(disposition(number, number, state=(ACCEPTED, REJECTED)[number % 2]) for number in range(count))
        client = client_of()
        list(events_of(client, prologue(())))
        begun_s = time.process_time()
        assert len(list(events_of(client, data))) == count
        return time.process_time() - begun_s

    small, large = min(cost_s(1000) for _ in range(3)), min(cost_s(8000) for _ in range(2))
    assert large < 8 * small * 4
