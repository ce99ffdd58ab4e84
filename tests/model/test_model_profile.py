"""Does every profile keep its shape?"""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crescendo.model.experiment import experiment_from
from crescendo.model.pacer import Pacer, messages_within
from crescendo.model.profile import PoissonPacer

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


def test_senders_and_seeds_have_arrivals_of_their_own() -> None:
    def first(seed: int, sender: int) -> list[int]:
        return pacer({"kind": "poisson"}, seed=seed, sender=sender).due_ns(np.arange(5)).tolist()

    assert first(1, 0) == first(1, 0)
    assert len({tuple(first(seed, sender)) for seed in (1, 2) for sender in (0, 1)}) == 4


def test_poisson_times_can_be_asked_for_in_any_order() -> None:
    numbers = np.arange(0, 100_000, 7)
    forwards = PoissonPacer(50.0, 3, 4).due_ns(numbers)
    backwards = PoissonPacer(50.0, 3, 4).due_ns(numbers[::-1])
    assert (forwards == backwards[::-1]).all()
