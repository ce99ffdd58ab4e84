"""When bytes leave a TCP link, in virtual time."""

from hypothesis import given
from hypothesis import strategies as st

from crescendo.lab.byte_lane import ByteLane, LaneShape

MS = 10**6
shapes = st.builds(
    LaneShape, delay_ns=st.integers(0, 50 * MS), rate_bps=st.one_of(st.none(), st.integers(0, 10**8))
)  # fmt: skip
steps = st.lists(st.tuples(st.integers(0, 20 * MS), st.one_of(st.integers(1, 5000), shapes)), min_size=1, max_size=60)


def left(lane: ByteLane[int], until_ns: int) -> list[tuple[int, int]]:
    """What leaves until then, with its time, if somebody looks whenever the lane says so."""
    found: list[tuple[int, int]] = []
    while (due_ns := lane.next_due_ns) is not None and due_ns <= until_ns:
        chunks = lane.due(due_ns)
        assert chunks, "the lane named a time at which nothing leaves"
        found += [(due_ns, chunk) for chunk in chunks]
    return found


@given(steps)
def test_no_byte_is_lost_doubled_or_overtaken_however_the_link_changes(
    steps: list[tuple[int, int | LaneShape]],
) -> None:
    lane: ByteLane[int] = ByteLane()
    now_ns, added, found = 0, 0, []
    for wait_ns, step in steps:
        now_ns += wait_ns
        found += [(now_ns, chunk) for chunk in lane.due(now_ns)]
        if isinstance(step, LaneShape):
            lane.change(step, now_ns)
        else:
            lane.add(added, step, now_ns)
            added += 1
    lane.change(LaneShape(), now_ns)
    found += [(now_ns, chunk) for chunk in lane.due(now_ns + 10**12)]
    assert [chunk for _, chunk in found] == list(range(added))


@given(
    st.lists(st.tuples(st.integers(0, 5 * MS), st.integers(1, 5000)), min_size=1, max_size=50),
    st.integers(0, 50 * MS),
    st.integers(8_000, 10**8),
)
def test_a_chunk_leaves_after_its_turn_at_the_rate_and_the_delay(
    chunks: list[tuple[int, int]], delay_ns: int, rate_bps: int
) -> None:
    """The expected times are those of a queue with one server, computed by its recursion."""
    lane: ByteLane[int] = ByteLane()
    lane.change(LaneShape(delay_ns, rate_bps), 0)
    now_ns = free_ns = 0
    expected = []
    for number, (wait_ns, size) in enumerate(chunks):
        now_ns += wait_ns
        lane.add(number, size, now_ns)
        free_ns = max(free_ns, now_ns) + size * 8 * 10**9 // rate_bps
        expected.append((free_ns + delay_ns, number))
    assert left(lane, 10**15) == expected


def test_nothing_leaves_a_lane_that_is_cut_and_the_rest_waits_its_turn_afterwards() -> None:
    lane: ByteLane[str] = ByteLane()
    lane.change(LaneShape(5 * MS, 8_000_000), 0)  # a byte per microsecond
    lane.add("travels", 1000, 0)
    lane.due(2 * MS)
    lane.change(LaneShape(5 * MS, None), 2 * MS)
    lane.add("waits", 1000, 3 * MS)
    assert lane.next_due_ns is None
    assert lane.due(900 * MS) == []
    lane.change(LaneShape(5 * MS, 8_000_000), 1000 * MS)
    assert lane.due(1000 * MS) == ["travels"]
    assert lane.next_due_ns == 1006 * MS
    assert lane.due(1006 * MS) == ["waits"]


def test_a_connection_waits_when_as_much_as_the_link_holds_is_on_its_way() -> None:
    assert LaneShape(100 * MS, 80_000_000).queue_bytes == 5_000_000  # half a second of ten megabytes each
    assert LaneShape(0, 8_000).queue_bytes == 1 << 16
    assert LaneShape().queue_bytes == 1 << 24
