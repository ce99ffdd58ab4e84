"""Do many settlements mean the same one by one and taken together?"""

import time

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


@st.composite
def streams(draw: st.DrawFn) -> tuple[bytes, list[tuple[int, bool, str]]]:
    """Runs of settlements, and what happens to each delivery, in order."""
    octets, meant = b"", []
    number = draw(st.sampled_from([0, 250, 70_000, 2**32 - 20]))
    for _ in range(draw(st.integers(1, 5))):
        settled, state = draw(st.booleans()), draw(st.sampled_from([ACCEPTED, ACCEPTED, REJECTED]))
        width, alone = draw(st.integers(1, 4)), draw(st.booleans())
        for _ in range(draw(st.integers(1, 40))):
            first, last = number & 0xFFFF_FFFF, (number if alone else number + width - 1) & 0xFFFF_FFFF
            octets += (
                single(first, settled=settled, state=state)
                if alone
                else disposition(first, last, settled=settled, state=state)
            )
            name = "Accepted" if state == ACCEPTED else "Rejected"
            meant += [((first + n) & 0xFFFF_FFFF, settled, name) for n in range(1 if alone else width)]
            number += (1 if alone else width) + draw(st.sampled_from([0, 0, 0, 0, 0, 3]))
    return octets, meant


def settlements(data: bytes, *, batching: bool, cut: int = 0) -> list[tuple[int, bool, str]]:
    client = client_of(batching=batching)
    list(events_of(client, prologue(())))
    events = events_of(client, data, [cut])
    return [
        ((event.first + n) & 0xFFFF_FFFF, event.settled, type(event.state).__name__)
        for event in events
        if isinstance(event, Settled)
        for n in range(((event.last - event.first) & 0xFFFF_FFFF) + 1)
    ]


@settings(max_examples=80)
@given(streams(), st.integers(0, 2000))
def test_both_paths_settle_the_same_deliveries_in_the_same_order(
    stream: tuple[bytes, list[tuple[int, bool, str]]], cut: int
) -> None:
    octets, meant = stream
    assert settlements(octets, batching=True, cut=cut) == meant
    assert settlements(octets, batching=False, cut=cut) == meant


def test_a_thousand_single_settlements_are_one_event() -> None:
    client = client_of()
    list(events_of(client, prologue(())))
    data = b"".join(disposition(number, number) for number in range(1000, 2000))
    assert [(event.first, event.last) for event in events_of(client, data)] == [(1000, 1999)]


def test_settlements_that_never_go_on_take_linear_time() -> None:
    def cost_s(count: int) -> float:
        data = b"".join(disposition(1000 + 2 * number, 1000 + 2 * number) for number in range(count))
        client = client_of()
        list(events_of(client, prologue(())))
        begun_s = time.process_time()
        assert len(list(events_of(client, data))) == count
        return time.process_time() - begun_s

    small, large = min(cost_s(1000) for _ in range(3)), min(cost_s(8000) for _ in range(2))
    assert large < 8 * small * 4
