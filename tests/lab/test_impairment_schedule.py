"""The fate of every packet follows from seed, link and direction alone."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crescendo.lab.impairment_schedule import DelayLine, ImpairmentSchedule, PacketFate, with_changed_bit
from crescendo.model.lab_network import CLEAN, Impairment
from crescendo.model.units import Duration, Share

MS = 1_000_000
ROUGH = Impairment(Duration(5 * MS), Duration(2 * MS), Share(0.1), Share(0.1), Share(0.1), Share(0.1))

impairments = st.builds(
    lambda delay, jitter, shares: Impairment(
        Duration(delay), Duration(min(jitter, delay)), *map(Share, shares[:2]), Share(shares[2] if delay else 0),
        Share(shares[3]),
    ),
    st.integers(0, 50 * MS), st.integers(0, 50 * MS), st.tuples(*[st.floats(0, 1)] * 4),
)  # fmt: skip


def fates(seed: int, impairment: Impairment, count: int = 200) -> list[PacketFate]:
    schedule = ImpairmentSchedule(seed, "port2", "up")
    return [schedule.next_fate(impairment) for _ in range(count)]


@given(st.integers(0, 2**63), impairments)
def test_the_same_seed_gives_the_same_fates(seed: int, impairment: Impairment) -> None:
    assert fates(seed, impairment, 50) == fates(seed, impairment, 50)


@given(st.integers(0, 2**63), impairments, st.integers(1, 49))
def test_a_change_of_the_impairment_leaves_later_fates_as_they_were(seed: int, other: Impairment, at: int) -> None:
    schedule = ImpairmentSchedule(seed, "port2", "up")
    for _ in range(at):
        schedule.next_fate(other)
    assert [schedule.next_fate(ROUGH) for _ in range(50 - at)] == fates(seed, ROUGH, 50)[at:]


def test_seeds_links_and_directions_differ() -> None:
    drawn = {
        tuple(schedule.next_fate(ROUGH) for _ in range(200))
        for schedule in (
            ImpairmentSchedule(1, "port2", "up"),
            ImpairmentSchedule(2, "port2", "up"),
            ImpairmentSchedule(1, "port3", "up"),
            ImpairmentSchedule(1, "port2", "down"),
        )
    }
    assert len(drawn) == 4


def test_shares_and_delays_are_those_that_were_asked_for() -> None:
    drawn = fates(7, ROUGH, 50_000)
    kept = [fate for fate in drawn if fate.delays_ns]
    counts = Counter({"lost": len(drawn) - len(kept)})
    for fate in kept:
        counts["doubled"] += len(fate.delays_ns) == 2
        counts["overtakes"] += fate.overtakes
        counts["damaged"] += fate.corrupt_at is not None
    # Of the packets that are not lost. Five standard deviations of 45,000 draws at 0.1 are 0.7 %.
    assert counts["lost"] / len(drawn) == pytest.approx(0.1, abs=0.007)
    for what in ("doubled", "overtakes", "damaged"):
        assert counts[what] / len(kept) == pytest.approx(0.1, abs=0.007), what
    delays = [fate.delays_ns[0] for fate in kept if not fate.overtakes]
    assert (min(delays), max(delays)) == (pytest.approx(3 * MS, rel=0.01), pytest.approx(7 * MS, rel=0.01))
    assert sum(delays) / len(delays) == pytest.approx(5 * MS, rel=0.01)


def test_a_clean_link_touches_nothing() -> None:
    assert set(fates(3, CLEAN)) == {PacketFate((0,))}


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 30), st.booleans()), max_size=40))
def test_packets_keep_their_order_unless_they_overtake(arrivals: list[tuple[int, int, bool]]) -> None:
    line: DelayLine[int] = DelayLine()
    now, left = 0, []
    for number, (gap, delay, overtakes) in enumerate(arrivals):
        now += gap
        line.add(number, now, PacketFate((0 if overtakes else delay,), None, overtakes))
        left += line.due(now)
    left += line.due(now + 1000)
    assert sorted(left) == list(range(len(arrivals)))
    orderly = [number for number in left if not arrivals[number][2]]
    assert orderly == sorted(orderly)
    assert line.next_due_ns is None


@given(st.binary(min_size=15, max_size=60), st.floats(0, 1, exclude_max=True))
def test_damage_is_one_bit_after_the_header(packet: bytes, at: float) -> None:
    damaged = with_changed_bit(packet, at, 14)
    assert damaged[:14] == packet[:14]
    changed = int.from_bytes(damaged, "big") ^ int.from_bytes(packet, "big")
    assert changed.bit_count() == 1
