"""What is the highest rate that stays within the limits?

Sans-IO: `begin` returns the first rate to try; `step` takes the outcome of a try and returns the next rate, or the
answer. Rates double until one fails; then the gap is halved (as a ratio) until it is narrow enough; then both of its
ends are tried again until k of n tries agree. Every try is a vote on its rate and no vote is discarded, so a rate that
was misjudged by chance is caught when it becomes an end of the gap, and the search continues from there. Runs nothing,
reads no clock, and never counts an invalid try as a pass.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated

import msgspec
import numpy as np
from msgspec import Meta, Struct

from crescendo.model.metrics import split_metric
from crescendo.model.pacer import MAX_RATE
from crescendo.model.verdict import Bound, Outcome, check_bound, check_metric

BACKLOG, STEADY = "backlog", "steady"
MIN_SECONDS = 5
"""It takes at least this many seconds to distinguish a growing backlog from a noisy one."""

INVALID_IN_A_ROW = 3
"""The search gives up after this many consecutive invalid tries at one rate."""

MAX_VOTES = 9
_PERCENT = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*%")
_CONFIRM = re.compile(r"([0-9]+) of ([0-9]+)")


class Resolution(str):
    """How wide the final gap may be, as written: `2%`."""

    __slots__ = ()

    @classmethod
    def parse(cls, text: object) -> "Resolution":
        match = _PERCENT.fullmatch(text.strip()) if isinstance(text, str) else None
        if match is None or not 0.1 <= float(match[1]) <= 50:
            raise ValueError(f"resolution {text!r} should be a percentage from 0.1% to 50%, such as 2%")
        return cls(text)

    @property
    def share(self) -> float:
        return float(self.strip().rstrip("%")) / 100


class Confirmation(str):
    """How many of how many tries must agree on the answer, as written: `2 of 3`."""

    __slots__ = ()

    @classmethod
    def parse(cls, text: object) -> "Confirmation":
        match = _CONFIRM.fullmatch(" ".join(text.split())) if isinstance(text, str) else None
        if match is None or not 1 <= int(match[1]) <= int(match[2]) <= MAX_VOTES:
            raise ValueError(f"confirm {text!r} should read K of N, such as 2 of 3, with N at most {MAX_VOTES}")
        return cls(match[0])

    @property
    def passes(self) -> int:
        """The number of passes that makes a rate good."""
        return int(self.split()[0])

    @property
    def fails(self) -> int:
        """The number of fails that makes a rate bad: enough passes can no longer be reached."""
        return int(self.split()[2]) - self.passes + 1


class Limit(str):
    """A limit that a try must meet, as written: a bound as in `checks`, or `steady` for the backlog."""

    __slots__ = ()

    @classmethod
    def parse(cls, text: object) -> "Limit":
        try:
            return cls(STEADY) if text == STEADY else cls(Bound.parse(text))
        except ValueError as err:
            raise ValueError(f"{err}; for the backlog write {STEADY}") from None


class Search(Struct, frozen=True, forbid_unknown_fields=True):
    """A search for the highest rate, in messages per second over all senders, that stays within every limit."""

    start: Annotated[float, Meta(gt=0, le=MAX_RATE)] = msgspec.field(name="from")
    end: Annotated[float, Meta(gt=0, le=MAX_RATE)] = msgspec.field(name="to")
    resolution: Resolution = Resolution("2%")
    confirm: Confirmation = Confirmation("2 of 3")
    limits: Annotated[dict[str, Limit], Meta(min_length=1)] = msgspec.field(
        default_factory=lambda: {"lost": Limit("== 0"), BACKLOG: Limit(STEADY)}
    )
    tries: Annotated[int, Meta(ge=1, le=1000)] = 60

    def __post_init__(self) -> None:
        if self.end < self.start:
            raise ValueError(f"to ({self.end:g}) must not be below from ({self.start:g})")
        for metric, limit in self.limits.items():
            if metric != BACKLOG:
                check_metric(metric, {split_metric(metric)[0]})  # the experiment knows which slices there are
            if (metric == BACKLOG) != (limit == STEADY):
                raise ValueError(f"limits.{metric}: {BACKLOG} takes only {STEADY}; the others take bounds")
        for metric, bound in self.bounds.items():
            check_bound(metric, bound)

    @property
    def bounds(self) -> dict[str, Bound]:
        """The limits that the verdict of a run can check."""
        return {metric: Bound(limit) for metric, limit in self.limits.items() if metric != BACKLOG}

    @property
    def wants_steady(self) -> bool:
        return BACKLOG in self.limits

    @property
    def tolerance(self) -> float:
        """The fraction of the rate by which a backlog may grow: differences below the resolution do not count."""
        return self.resolution.share / 2


class Votes(Struct, frozen=True):
    """The outcomes of the tries at one rate."""

    passes: int = 0
    fails: int = 0
    invalid_in_a_row: int = 0

    def with_vote(self, outcome: Outcome) -> "Votes":
        if outcome is Outcome.INVALID:
            return msgspec.structs.replace(self, invalid_in_a_row=self.invalid_in_a_row + 1)
        passed = outcome is Outcome.PASS
        return Votes(self.passes + passed, self.fails + (not passed))


@dataclass(frozen=True)
class SearchState:
    """The state of the search: the rate to try next, and all votes so far."""

    search: Search
    rate: float
    votes_by_rate: Mapping[float, Votes] = field(default_factory=dict)
    tries: int = 0


class SearchAnswer(Struct, frozen=True):
    """The highest rate confirmed to pass, and the lowest rate above it confirmed to fail; None where there is none.

    Complete when both ends are confirmed and as close as the resolution asks."""

    rate: float | None
    above: float | None
    complete: bool
    reason: str


def begin(search: Search) -> SearchState:
    return SearchState(search, search.start)


def step(state: SearchState, outcome: Outcome) -> SearchState | SearchAnswer:
    """The next state or the answer, given the outcome of the try at `state.rate`."""
    votes = state.votes_by_rate.get(state.rate, Votes()).with_vote(outcome)
    after = replace(state, votes_by_rate={**state.votes_by_rate, state.rate: votes}, tries=state.tries + 1)
    next_rate = _next_rate(after, votes)
    if isinstance(next_rate, str):
        return _answer(after, next_rate)
    if after.tries >= after.search.tries:
        return end_early(after, f"{after.tries} tries were not enough")
    if votes.invalid_in_a_row >= INVALID_IN_A_ROW:
        return end_early(after, f"{votes.invalid_in_a_row} tries in a row at {after.rate:,.0f} msg/s were invalid")
    return replace(after, rate=next_rate)


def end_early(state: SearchState, reason: str) -> SearchAnswer:
    """The answer as far as it is known when the search ends early."""
    return _answer(state, reason, complete=False)


def _next_rate(after: SearchState, votes: Votes) -> float | str:
    """The next rate, or why none is needed."""
    search = after.search
    if votes.invalid_in_a_row or (_is_good(votes, search) is None):
        return after.rate
    low, high = gap(after)
    if low is None:
        confirmed = after.votes_by_rate[search.start].fails >= search.confirm.fails
        return "even the lowest rate fails" if confirmed else search.start
    if high is None and low < search.end:
        return min(low * 2, search.end)
    if high is not None and high > low * (1 + search.resolution.share) and _midpoint(low, high) is not None:
        return _midpoint(low, high) or low
    if after.votes_by_rate[low].passes < search.confirm.passes:
        return low
    if high is None:
        return "the highest rate to try passes"
    return high if after.votes_by_rate[high].fails < search.confirm.fails else "both ends are confirmed"


def gap(state: SearchState) -> tuple[float | None, float | None]:
    """The highest rate that appears to pass, and the lowest rate above it that appears to fail."""
    good = {rate: _is_good(votes, state.search) for rate, votes in state.votes_by_rate.items()}
    high = min((rate for rate, verdict in good.items() if verdict is False), default=None)
    below = (rate for rate, verdict in good.items() if verdict and (high is None or rate < high))
    return max(below, default=None), high


def _is_good(votes: Votes, search: Search) -> bool | None:
    """Whether a rate passes: by k of n once enough votes are in, until then by majority; None on a tie."""
    if votes.passes >= search.confirm.passes or votes.fails >= search.confirm.fails:
        return votes.passes >= search.confirm.passes
    return None if votes.passes == votes.fails else votes.passes > votes.fails


def _midpoint(low: float, high: float) -> float | None:
    """The geometric middle of a gap, rounded to whole messages where possible."""
    middle = math.sqrt(low * high)
    for candidate in (float(round(middle)), middle):
        if low < candidate < high:
            return candidate
    return None


def _answer(state: SearchState, reason: str, *, complete: bool = True) -> SearchAnswer:
    confirm = state.search.confirm
    bad = [rate for rate, votes in state.votes_by_rate.items() if votes.fails >= confirm.fails]
    above = min(bad, default=None)
    good = [rate for rate, votes in state.votes_by_rate.items() if votes.passes >= confirm.passes]
    rate = max((rate for rate in good if above is None or rate < above), default=None)
    return SearchAnswer(rate, above, complete, reason)


def backlog_growth(due: Sequence[float], received: Sequence[float]) -> float | None:
    """Growth of the backlog in messages per second, by linear regression; None when there are too few seconds.

    The backlog is what was due and had not arrived at the end of each second. Messages that a sender was blocked from
    sending are part of it: to their consumer it makes no difference where they wait."""
    if len(due) < MIN_SECONDS:
        return None
    backlog = np.cumsum(np.asarray(due, float) - np.asarray(received, float))
    return float(np.polynomial.polynomial.polyfit(np.arange(len(backlog)), backlog, 1)[1])


def growth_by_delay(rate: float, delay_s: float, seconds: int) -> float:
    """The growth that delays of at most `delay_s` can cause in a regression over this many seconds.

    At any time they keep between 0 and rate · delay messages away. The slope weighs the backlog of second i with
    12 (i - (n - 1) / 2) / (n (n² - 1)); the positive weights add up to 1.5 n / (n² - 1) at most."""
    return 1.5 * rate * delay_s * seconds / (seconds**2 - 1)
