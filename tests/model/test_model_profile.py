"""Does every profile have the right shape?"""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crescendo.load.assignment import quota_of
from crescendo.model.errors import ConfigError
from crescendo.model.experiment_file import experiment_from
from crescendo.model.experiment_parts import Phases
from crescendo.model.pacer import Pacer, messages_within
from crescendo.model.profile import PoissonPacer
from crescendo.model.schedule import messages_due
from crescendo.model.units import Duration, Extent

SECOND = 10**9


def pacer(profile: dict[str, object], rate: float = 1000.0, seed: int = 1, sender: int = 0) -> Pacer:
    experiment = experiment_from({"name": "x", "workload": {"rate": rate}, "profile": profile, "seed": seed})
    return experiment.pacer_of(experiment.workload[0], sender)


def per_second(one: Pacer, seconds: int) -> list[int]:
    due_ns = one.due_ns(np.arange(messages_within(one, seconds * SECOND)))
    return np.bincount(due_ns // SECOND, minlength=seconds).tolist()


@pytest.mark.parametrize(
    ("profile", "expected"),
    [
        ({"kind": "constant"}, [1000] * 6),
        ({"kind": "steps", "steps": [{"factor": 0.5, "lasts": "2s"}, {"factor": 2, "lasts": "1s"}]},
         [500, 500, 2000, 2000, 2000, 2000]),
        ({"kind": "spike", "at": "2s", "lasts": "1s", "factor": 5}, [1000, 1000, 5000, 1000, 1000, 1000]),
        ({"kind": "on-off", "active": "1s", "idle": "2s"}, [1000, 0, 0, 1000, 0, 0]),
        ({"kind": "ramp", "over": "4s"}, [125, 375, 625, 875, 1000, 1000]),
        ({"kind": "ramp", "over": "4s", "from": 1, "to": 0}, [875, 625, 375, 125, 0, 0]),
    ],
    ids=lambda value: str(value.get("kind")) if isinstance(value, dict) else "",
)  # fmt: skip
def test_each_second_holds_what_the_profile_says(profile: dict[str, object], expected: list[int]) -> None:
    assert np.abs(np.array(per_second(pacer(profile), 6)) - expected).max() <= 1


@pytest.mark.parametrize("profile", [{"kind": "constant"}, {"kind": "steps", "steps": [{"factor": 1, "lasts": "1s"}]}])
@pytest.mark.parametrize("connections", [7, 100])
def test_connections_are_staggered_instead_of_sending_together(profile: dict[str, object], connections: int) -> None:
    pacers = [pacer(profile, rate=10.0, sender=number) for number in range(connections)]
    together = np.sort(np.concatenate([one.due_ns(np.arange(100)) for one in pacers]))
    fair_ns = SECOND // 10 // connections
    assert np.diff(together).max() < 3 * fair_ns  # in phase, all would be due at once and then none for 100 ms
    assert all(messages_within(one, 10 * SECOND) == 100 for one in pacers)


@pytest.mark.parametrize(
    "profile",
    [
        {"kind": "constant"},
        {"kind": "steps", "steps": [{"factor": 0.5, "lasts": "2s"}, {"factor": 2, "lasts": "1s"}]},
        {"kind": "spike", "at": "2s", "lasts": "1s", "factor": 5},
        {"kind": "on-off", "active": "1s", "idle": "2s"},
        {"kind": "ramp", "over": "4s"},
        {"kind": "sine", "period": "3s", "depth": 1},
        {"kind": "incremental", "every": "1s", "from": 0.5, "step": 0.25, "connections": 2, "join": 2},
    ],
    ids=lambda profile: str(profile["kind"]),
)
def test_what_is_due_over_time_is_what_all_pacers_together_send(profile: dict[str, object]) -> None:
    groups = [{"name": "a", "rate": 200, "senders": 3}, {"name": "b", "rate": 50, "senders": 4}]
    experiment = experiment_from({"name": "x", "workload": groups, "profile": profile})
    numbered = [group for group in experiment.workload for _ in range(group.senders)]
    sent = sum(np.array(per_second(experiment.pacer_of(group, n), 7)) for n, group in enumerate(numbered))
    offered = messages_due(experiment, np.arange(8) * 1e9)
    assert np.abs(np.diff(offered) - sent).max() <= len(numbered)  # each pacer may round once


def test_of_random_arrivals_the_mean_is_due() -> None:
    experiment = experiment_from({"name": "x", "workload": {"rate": 10, "senders": 3}, "profile": {"kind": "poisson"}})
    assert messages_due(experiment, np.array([0.0, 1e9, 5e9])) == pytest.approx([0.0, 30.0, 150.0])


def test_a_sine_swings_around_the_rate_and_averages_to_it() -> None:
    counts = per_second(pacer({"kind": "sine", "period": "8s", "depth": 0.5}), 16)
    assert sum(counts) == pytest.approx(16_000, abs=2)
    assert counts[:8] == pytest.approx(counts[8:], abs=1)
    assert max(counts) == pytest.approx(1450, rel=0.02)
    assert min(counts) == pytest.approx(550, rel=0.03)


def test_poisson_arrivals_have_exponential_gaps_of_the_right_mean() -> None:
    due_ns = pacer({"kind": "poisson"}).due_ns(np.arange(200_000))
    gaps = np.diff(due_ns)
    assert (gaps >= 0).all()
    assert gaps.mean() == pytest.approx(1e6, rel=0.01)
    assert gaps.std() == pytest.approx(1e6, rel=0.02)
    assert (gaps > 1e6).mean() == pytest.approx(np.exp(-1), abs=0.005)


@given(st.integers(0, 2**31), st.integers(0, 1000), st.integers(0, 40 * SECOND))
def test_poisson_counts_and_times_never_disagree_and_repeat_with_the_seed(
    seed: int, sender: int, elapsed_ns: int
) -> None:
    one, again = PoissonPacer(1000.0, seed, sender), PoissonPacer(1000.0, seed, sender)
    count = one.due_count(elapsed_ns)
    before, after = again.due_ns(np.array([max(count - 1, 0), count])).tolist()
    assert after > elapsed_ns
    assert count == 0 or before <= elapsed_ns


def test_each_sender_and_seed_has_its_own_arrivals() -> None:
    def first(seed: int, sender: int) -> list[int]:
        return pacer({"kind": "poisson"}, seed=seed, sender=sender).due_ns(np.arange(5)).tolist()

    assert first(1, 0) == first(1, 0)
    assert len({tuple(first(seed, sender)) for seed in (1, 2) for sender in (0, 1)}) == 4


def test_poisson_times_can_be_asked_for_in_any_order() -> None:
    numbers = np.arange(0, 100_000, 7)
    forwards = PoissonPacer(50.0, 3, 4).due_ns(numbers)
    backwards = PoissonPacer(50.0, 3, 4).due_ns(numbers[::-1])
    assert (forwards == backwards[::-1]).all()


def trace(tmp_path: Path, text: str) -> dict[str, object]:
    path = tmp_path / "trace"
    path.write_text(text)
    return {"kind": "replay", "file": str(path)}


def test_a_trace_is_replayed_from_its_first_arrival(tmp_path: Path) -> None:
    profile = trace(tmp_path, "100.5\n100.5\n100.75\n103\n")
    one = pacer(profile)
    assert one.due_ns(np.arange(5)).tolist() == [0, 0, SECOND // 4, SECOND * 5 // 2, 2**62]
    assert [one.due_count(ns) for ns in (-1, 0, SECOND // 4 - 1, SECOND // 4, 99 * SECOND)] == [0, 2, 2, 3, 4]
    assert pacer({**profile, "speed": 5}).due_ns(np.arange(4)).tolist() == [0, 0, SECOND // 20, SECOND // 2]


def test_a_count_beyond_the_trace_ends_with_it(tmp_path: Path) -> None:
    phases = Phases(warmup=Duration(0), measure=Extent("10"))
    assert quota_of(pacer(trace(tmp_path, "1\n2\n3")), phases).total == 3


@pytest.mark.parametrize(
    ("text", "cure"),
    [("", "no arrival times"), ("1\n0.5\n", "line 2"), ("1\nsoon\n", "line 2: 'soon'"), ("nan", "line 1")],
)
def test_an_invalid_trace_is_rejected_with_its_line(tmp_path: Path, text: str, cure: str) -> None:
    with pytest.raises(ConfigError, match=cure):
        pacer(trace(tmp_path, text))


def test_first_the_rate_grows_and_then_connections_join() -> None:
    profile = {"kind": "incremental", "every": "1s", "from": 0.5, "step": 0.3, "connections": 2, "join": 2}
    seconds = [per_second(pacer(profile, sender=sender), 6) for sender in range(5)]
    first, joined_fourth, joined_fifth = (
        [500, 800, 1000, 1000, 1000, 1000],
        [0, 0, 0, 1000, 1000, 1000],
        [0] * 4 + [1000] * 2,
    )
    for found, expected in zip(seconds, [first, first, joined_fourth, joined_fourth, joined_fifth], strict=True):
        assert np.abs(np.array(found) - expected).max() <= 1
