"""Episodes that are ours in part, against every pair of messages compared."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import given, settings
from hypothesis import strategies as st

from crescendo.pipeline.latency.delay_episodes import TIME_BITS, episodes_of, shared_episodes
from crescendo.pipeline.latency.delay_ranges import DelayRanges
from crescendo.pipeline.latency.late_spans import LEAST_OCTAVE, least_octave
from crescendo.pipeline.latency.message_paths import MessagePaths
from crescendo.pipeline.source.recorded_stalls import Stall

LEAST = 4  # delays of 16 ns and more
Message = tuple[int, int, int]  # due at, late by, of which ours
MESSAGES = st.lists(
    st.tuples(st.integers(0, 3000), st.integers(0, 400), st.integers(0, 100)).map(lambda m: (m[0], m[1] + 16, m[2])),
    max_size=12,
)
NUMBER = (1 << 47) - 1


def expected(messages: list[Message]) -> set[tuple[int, int]]:
    """The messages that overlap are merged one by one, for each octave of our delays."""
    found = set()
    for level in range(LEAST, 12):
        spans = [
            [due, due + late, own if 2**level <= own < 2 ** (level + 1) else 0]
            for due, late, own in messages
            if late >= 2**level
        ]
        merged = True
        while merged:
            merged = False
            for one in spans:
                for other in spans:
                    if one is not other and one[0] <= other[1] and other[0] <= one[1]:
                        one[:] = [min(one[0], other[0]), max(one[1], other[1]), max(one[2], other[2])]
                        spans.remove(other)
                        merged = True
                        break
                if merged:
                    break
        found |= {(start, end) for start, end, own in spans if own > (end - start) / 10}
    return found


@settings(max_examples=200, deadline=None)
@given(messages=MESSAGES)
def test_late_messages_that_overlap_are_one_episode(messages: list[Message]) -> None:
    due, late, own = (np.array([message[index] for message in messages], np.int64) for index in range(3))
    octave = np.array([int(one).bit_length() - 1 for one in late], np.int64)
    found = episodes_of(np.array([octave, due, due + late, own]), LEAST)
    pairs = {(int(start), int(end)) for starts, ends in found for start, end in zip(starts, ends, strict=True)}
    assert pairs == expected(messages)


def written(path: Path, rows: list[tuple[int, int, int, int, int]]) -> list[Path]:
    names = ("path", "octave", "start_ns", "end_ns", "longest_own_ns")
    pq.write_table(pa.table(dict(zip(names, map(list, zip(*rows, strict=True)), strict=True))), path)
    return [path]


def no_stalls(_: int) -> list[Stall]:
    return []


MS = 1 << 20
TICKS = MS >> TIME_BITS


def spans(episodes: DelayRanges) -> list[tuple[int, int, int]]:
    """Path, start and end in milliseconds."""
    columns = episodes.first >> 47, (episodes.first & NUMBER) // TICKS, (episodes.last & NUMBER) // TICKS
    return list(zip(*(column.tolist() for column in columns), strict=True))


def test_episodes_of_a_path_are_merged_and_those_of_a_sender_are_those_of_its_paths(tmp_path: Path) -> None:
    rows = [
        (4, 26, 0, 100 * MS, 70 * MS),
        (4, 24, 90 * MS, 110 * MS, 20 * MS),  # a shorter delay, with which an episode of shorter delays begins
        (5, 26, 50 * MS, 150 * MS, 70 * MS),
        (5, 24, 140 * MS, 170 * MS, 0),  # shorter than ours
        (7, 26, 0, 100 * MS, 9 * MS),  # our part is trifling
    ]
    files = written(tmp_path / "part.parquet", rows)
    assert spans(shared_episodes(files, 23, 0, no_stalls)) == [(4, 0, 110), (5, 50, 150)]
    assert spans(shared_episodes(files, 23, 0, no_stalls, ends=3)) == [(1, 0, 150)]


def test_a_stall_is_part_of_the_episode_that_it_overlaps_although_no_message_was_late_for_it(tmp_path: Path) -> None:
    rows = [(1, 26, 0, 100 * MS, 0), (2, 26, 0, 100 * MS, 0), (3, 26, 0, 100 * MS, 0)]
    files = written(tmp_path / "part.parquet", rows)
    stalls = {1: Stall(80 * MS, 30 * MS), 2: Stall(200 * MS, 30 * MS), 3: Stall(50 * MS, 9 * MS)}
    found = shared_episodes(files, 23, 0, lambda path: [stalls[path]])
    # Within an episode, apart from it, and too short.
    assert spans(found) == [(1, 0, 110), (2, 200, 230)]


def test_a_run_without_delays_of_ours_has_no_episodes(tmp_path: Path) -> None:
    files = written(tmp_path / "part.parquet", [(1, 26, 0, 100 * MS, 0)])
    assert shared_episodes(files, 23, 0, no_stalls).first.size == 0
    assert shared_episodes([], 23, 0, no_stalls).first.size == 0


def test_stalls_belong_to_the_paths_of_their_process() -> None:
    paths = MessagePaths(senders={0: 0, 1: 0, 2: 1}, receivers={0: 0, 1: 1})
    ours, theirs = Stall(1, 10), Stall(2, 20)
    found = {path: paths.stalls_of(path, [([0, 1], [ours])], [([1], [theirs])]) for path in range(paths.count)}
    # 3 * (sending end + 1) + receiving end + 1
    assert {path: stalls for path, stalls in found.items() if stalls} == {
        3: [ours], 4: [ours], 5: [ours, theirs], 2: [theirs], 8: [theirs],
    }  # fmt: skip


def test_long_runs_with_many_paths_have_fewer_rows() -> None:
    assert least_octave(60 * 10**9, 4) == LEAST_OCTAVE
    hour = least_octave(3600 * 10**9, 100)
    assert 3600 * 10**9 * 100 / 2**hour <= 1 << 20
