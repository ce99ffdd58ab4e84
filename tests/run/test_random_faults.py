"""Are random timelines repeatable and sound, and is a failing one shortened to what is needed?"""

import itertools
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from crescendo.model.experiment import Experiment
from crescendo.model.experiment_file import load_experiment
from crescendo.model.fault_timelines import SPACING_NS, Timeline, length_ns, random_timeline, shrunk
from crescendo.run.random_faults import torture, tortured

seeds = st.integers(0, 2**63 - 1)


@given(seed=seeds, number=st.integers(0, 1000))
def test_a_timeline_is_drawn_again_from_its_seed_and_number(seed: int, number: int) -> None:
    timeline = random_timeline(seed, number, 5)
    assert timeline == random_timeline(seed, number, 5)
    assert 1 <= len(timeline) <= 5
    for earlier, later in itertools.pairwise(timeline):
        assert later.at.offset - earlier.at.offset - (earlier.lasts or 0) >= SPACING_NS
    assert tortured("loopback", timeline, 1).faults == list(timeline), "and an experiment can have it"
    assert length_ns(timeline) >= timeline[-1].at.offset


def test_other_numbers_have_other_timelines() -> None:
    assert len({repr(random_timeline(1, number, 5)) for number in range(20)}) > 10


@given(seed=seeds, culprits=st.sets(st.integers(0, 7), min_size=1, max_size=2))
def test_a_failing_timeline_is_shortened_to_its_culprits(seed: int, culprits: set[int]) -> None:
    timeline = tuple(fault for number in range(8) for fault in random_timeline(seed, number, 1))
    needed = [timeline[number] for number in sorted(culprits)]
    tried: list[Timeline] = []

    def fails(part: Timeline) -> bool:
        tried.append(part)
        return all(any(fault is each for each in part) for fault in needed)

    assert list(shrunk(timeline, fails)) == needed
    assert len(tried) <= 40


def test_a_torture_that_finds_a_loss_saves_the_shortest_timeline(tmp_path: Path) -> None:

    out = tmp_path

    def lost(experiment: Experiment) -> int | None:
        return 3 * any(fault.do == "kill" for fault in experiment.faults)

    found = torture("loopback", seed=4, lasts_s=60, out=out, lost=lost, report=lambda _: None)
    assert found.saved is not None
    saved = load_experiment(found.saved)
    assert [fault.do for fault in saved.faults] == ["kill"]
    assert saved.faults == list(found.shortest)


def test_a_torture_that_finds_nothing_ends_with_its_time(tmp_path: Path) -> None:

    found = torture("loopback", seed=4, lasts_s=0, out=tmp_path, lost=lambda _: 0, report=lambda _: None)
    assert (found.tries, found.saved) == (1, None)
