"""Does the search find a capacity that only the test knows, despite noise?

The systems are simulated in virtual time: no clock, no process, and their capacity never reaches the search.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crescendo.model.errors import ConfigError
from crescendo.model.experiment_file import experiment_from, to_document
from crescendo.model.search import (
    INVALID_IN_A_ROW,
    Confirmation,
    Resolution,
    Search,
    SearchAnswer,
    SearchState,
    backlog_growth,
    begin,
    step,
)
from crescendo.model.verdict import Outcome

PASS, FAIL, INVALID = Outcome.PASS, Outcome.FAIL, Outcome.INVALID
CAPACITIES = st.floats(1_000, 200_000)


def search(**changes: object) -> Search:
    values = {"start": 1_000.0, "end": 200_000.0, **changes}
    return Search(**values)  # type: ignore[arg-type]


def answer_of(sought: Search, probe: Callable[[float], Outcome]) -> tuple[SearchAnswer, list[float]]:
    state: SearchState | SearchAnswer = begin(sought)
    tried: list[float] = []
    while isinstance(state, SearchState):
        tried.append(state.rate)
        state = step(state, probe(state.rate))
    return state, tried


@given(CAPACITIES, st.sampled_from(["0.5%", "2%", "10%"]), st.sampled_from(["1 of 1", "2 of 3", "3 of 3", "3 of 5"]))
def test_a_system_without_noise_is_bracketed_to_the_resolution(capacity: float, width: str, confirm: str) -> None:
    sought = search(resolution=Resolution(width), confirm=Confirmation(confirm))
    answer, tried = answer_of(sought, lambda rate: PASS if rate <= capacity else FAIL)
    assert answer.complete
    assert answer.rate is not None
    assert answer.rate <= capacity
    if answer.above is None:
        assert answer.rate == 200_000  # even the highest rate passes
    else:
        assert capacity < answer.above <= answer.rate * (1 + sought.resolution.share)
    assert tried.count(answer.rate) == sought.confirm.passes
    assert len(tried) <= 8 + 9 + 2 * 5  # doublings, halvings, confirmations


@dataclass
class Liar:
    """Gives the right answer, except for a few tries at each rate, which Hypothesis chooses."""

    capacity: float
    draws: st.DataObject
    false_fails: int
    false_passes: int
    lies: dict[float, int] = field(default_factory=dict)

    def __call__(self, rate: float) -> Outcome:
        truth = rate <= self.capacity
        allowed = self.false_fails if truth else self.false_passes
        if self.lies.get(rate, 0) < allowed and self.draws.draw(st.booleans()):
            self.lies[rate] = self.lies.get(rate, 0) + 1
            truth = not truth
        return PASS if truth else FAIL


@settings(max_examples=100)
@given(CAPACITIES, st.sampled_from(["2 of 3", "3 of 5", "2 of 4"]), st.data())
def test_as_many_wrong_answers_per_rate_as_k_of_n_tolerates_change_nothing(
    capacity: float, confirm: str, draws: st.DataObject
) -> None:
    k, n = int(confirm[0]), int(confirm[-1])
    sought = search(resolution=Resolution("5%"), confirm=Confirmation(confirm), tries=1000)
    answer, tried = answer_of(sought, Liar(capacity, draws, n - k, k - 1))
    assert answer.complete
    assert answer.rate is not None
    assert answer.rate <= capacity
    assert answer.above is None or capacity < answer.above <= answer.rate * 1.05
    assert max(tried.count(rate) for rate in tried) <= n


@dataclass
class FluidQueue:
    """A system that serves about `capacity` messages per second, for 20 virtual seconds per try."""

    capacity: float
    noise: random.Random
    jitter: float
    glitch: float  # the probability that a try contains a second without service

    def __call__(self, rate: float) -> Outcome:
        stalled = self.noise.randrange(20) if self.noise.random() < self.glitch else -1
        waiting, received = 0.0, []
        for second in range(20):
            waiting += rate
            served = 0.0 if second == stalled else self.capacity * self.noise.gauss(1.0, self.jitter)
            received.append(min(waiting, max(served, 0.0)))
            waiting -= received[-1]
        growth = backlog_growth([rate] * 20, received)
        assert growth is not None
        return PASS if growth <= rate * 0.01 and waiting / self.capacity < 1.5 else FAIL


@pytest.mark.parametrize("jitter", [0.0, 0.03])
def test_a_noisy_queue_with_glitches_is_found_within_a_few_percent(jitter: float) -> None:
    noise = random.Random(20)
    off = []
    for _ in range(200):
        capacity = noise.uniform(2_000, 150_000)
        answer, _ = answer_of(search(), FluidQueue(capacity, noise, jitter, glitch=0.05))
        assert answer.rate is not None
        off.append(abs(answer.rate / capacity - 1))
    off.sort()
    # Service that varies by 3 % sustains slightly less than its mean; one glitch in 20 tries must have no effect.
    assert off[len(off) // 2] < 0.03
    assert off[int(len(off) * 0.95)] < 0.06


def test_an_invalid_try_is_repeated_and_never_counts_as_a_pass() -> None:
    state = step(begin(search()), INVALID)
    assert isinstance(state, SearchState)
    assert state.rate == 1_000
    state = step(state, PASS)
    assert isinstance(state, SearchState)
    assert state.rate == 2_000


def test_a_rate_that_stays_invalid_ends_the_search_without_an_answer() -> None:
    answer, tried = answer_of(search(), lambda rate: PASS if rate < 4_000 else INVALID)
    assert not answer.complete
    assert "invalid" in answer.reason
    assert tried == [1_000, 2_000] + [4_000] * INVALID_IN_A_ROW
    assert answer.rate is None  # 2,000 passed once, and two passes are required


@given(st.lists(st.sampled_from([PASS, FAIL, INVALID]), max_size=80))
def test_no_rate_is_ever_reported_without_its_confirmations(outcomes: list[Outcome]) -> None:
    state: SearchState | SearchAnswer = begin(search(tries=1000))
    votes: dict[tuple[float, Outcome], int] = {}
    for outcome in outcomes:
        if isinstance(state, SearchAnswer):
            break
        votes[state.rate, outcome] = votes.get((state.rate, outcome), 0) + 1
        assert 1_000 <= state.rate <= 200_000
        state = step(state, outcome)
    if isinstance(state, SearchAnswer):
        assert state.rate is None or votes[state.rate, PASS] >= 2
        assert state.above is None or votes[state.above, FAIL] >= 2


def test_a_system_below_the_lowest_rate_has_no_answer_but_a_bound() -> None:
    answer, tried = answer_of(search(), lambda _: FAIL)
    assert (answer.rate, answer.above, answer.complete) == (None, 1_000, True)
    assert tried == [1_000, 1_000]


def test_the_number_of_tries_is_bounded() -> None:
    answer, tried = answer_of(search(tries=5), lambda rate: PASS if rate < 77_777 else FAIL)
    assert len(tried) == 5
    assert not answer.complete


def test_backlog_growth_is_the_slope_of_the_backlog() -> None:
    assert backlog_growth([100.0] * 10, [90.0] * 10) == pytest.approx(10.0)
    assert backlog_growth([100.0] * 10, [100.0] * 10) == pytest.approx(0.0)
    # A second without service that is caught up at once is not growth.
    assert abs(backlog_growth([100.0] * 11, [100.0] * 5 + [0.0, 200.0] + [100.0] * 4) or 0.0) < 1.0
    assert backlog_growth([100.0] * 4, [90.0] * 4) is None


def read(**given: object) -> object:
    return experiment_from({"name": "x", **given})


GOOD = {"from": 1000, "to": 200_000}


def test_a_search_round_trips() -> None:
    experiment = experiment_from(
        {"name": "x", "search": {**GOOD, "limits": {"response_p99": "<= 50ms", "lost": 0, "backlog": "steady"}}}
    )
    assert experiment.search is not None
    assert experiment.search.bounds == {"response_p99": "<= 50ms", "lost": "== 0"}
    assert experiment.search.wants_steady
    assert (experiment.search.confirm.passes, experiment.search.confirm.fails) == (2, 2)
    assert experiment_from(to_document(experiment)) == experiment


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"search": {"from": 5, "to": 4}}, "search: to (4) must not be below from (5)"),
        ({"search": {**GOOD, "resolution": 2}}, "search.resolution: "),
        ({"search": {**GOOD, "resolution": "0%"}}, "search.resolution: "),
        ({"search": {**GOOD, "confirm": "4 of 3"}}, "search.confirm: "),
        ({"search": {**GOOD, "limits": {"backlog": 3}}}, "limits.backlog"),
        ({"search": {**GOOD, "limits": {"p99": "<= 1s"}}}, "no metric is called 'p99'"),
        ({"search": {**GOOD, "limit": {}}}, "did you mean 'limits'?"),
        ({"search": GOOD, "checks": {"lost": 0}}, "move the checks there"),
        ({"search": GOOD, "workload": {"rate": 0}}, "give a rate"),
        ({"search": GOOD, "profile": {"kind": "poisson"}}, "remove profile"),
        ({"search": GOOD, "phases": {"measure": "3s"}}, "phases.measure must be a duration of 6s"),
        ({"search": GOOD, "phases": {"measure": "1000 messages"}}, "phases.measure must be a duration of 6s"),
    ],
)
def test_a_mistake_is_named_with_its_cure(given: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read(**given)
    assert message in str(caught.value)
