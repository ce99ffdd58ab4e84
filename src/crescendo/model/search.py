"""What is the highest rate that keeps the limits?

Sans-IO: `begin` names the first rate to try, `step` takes what became of it and names the next, or gives the answer.
Rates double until one fails, then the gap is halved (as a ratio) until it is narrow enough, and then both of its ends
are tried again until k of n say the same. Every try is a vote for its rate and no vote is forgotten, so a rate that was
misjudged by accident is found out when it becomes an end of the gap, and the search goes on from there. Runs nothing,
reads no clock, and never takes an invalid try for a pass.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated

import msgspec
import numpy as np
from msgspec import Meta, Struct

from crescendo.model.pacer import MAX_RATE
from crescendo.model.verdict import Bound, Outcome, check_bound, check_metric

BACKLOG, STEADY = "backlog", "steady"
FEWEST_SECONDS = 5
"""A growing backlog is told from a noisy one by this many seconds at the least."""

INVALID_IN_A_ROW = 3
"""So often a try that proves nothing is repeated at the same rate before the search gives up."""

MAX_OF = 9
_PERCENT = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*%")
_CONFIRM = re.compile(r"([0-9]+) of ([0-9]+)")


class Resolution(str):
    """How wide the gap may stay, as written: `2%`."""

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
        if match is None or not 1 <= int(match[1]) <= int(match[2]) <= MAX_OF:
            raise ValueError(f"confirm {text!r} should read K of N, such as 2 of 3, with N at most {MAX_OF}")
        return cls(match[0])

    @property
    def passes(self) -> int:
        """So many passes make a rate good."""
        return int(self.split()[0])

    @property
    def fails(self) -> int:
        """So many fails make a rate bad: from here on the passes cannot be reached."""
        return int(self.split()[2]) - self.passes + 1


class Limit(str):
    """What a try must keep, as written: a bound as in `checks`, or `steady` for the backlog."""

    __slots__ = ()

    @classmethod
    def parse(cls, text: object) -> "Limit":
        return cls(STEADY) if text == STEADY else cls(Bound.parse(text))


class Search(Struct, frozen=True, forbid_unknown_fields=True):
    """Look for the highest rate, in messages a second over all senders, at which every limit is kept."""

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
                check_metric(metric)
            if (metric == BACKLOG) != (limit == STEADY):
                raise ValueError(f"limits.{metric}: {BACKLOG} is {STEADY} or not looked at; the others have bounds")
        for metric, bound in self.bounds.items():
            check_bound(metric, bound)

    @property
    def bounds(self) -> dict[str, Bound]:
        """The limits that the verdict of a run can judge."""
        return {metric: Bound(limit) for metric, limit in self.limits.items() if metric != BACKLOG}

    @property
    def wants_steady(self) -> bool:
        return BACKLOG in self.limits

    @property
    def tolerance(self) -> float:
        """The share of the rate by which a backlog may seem to grow: what lies within the gap is not decided."""
        return self.resolution.share / 2


class Votes(Struct, frozen=True):
    """What became of the tries at one rate."""

    passes: int = 0
    fails: int = 0
    invalid_in_a_row: int = 0

    def with_vote(self, outcome: Outcome) -> "Votes":
        if outcome is Outcome.INVALID:
            return msgspec.structs.replace(self, invalid_in_a_row=self.invalid_in_a_row + 1)
        passed = outcome is Outcome.PASS
        return Votes(self.passes + passed, self.fails + (not passed))


@dataclass(frozen=True)
class Seeking:
    """Where the search is: the rate to try next, and all votes so far."""

    search: Search
    rate: float
    tallies: Mapping[float, Votes] = field(default_factory=dict)
    tries: int = 0


class Answer(Struct, frozen=True):
    """The highest rate that was confirmed, and the lowest above it that was confirmed not to do; None where there is
    none. Complete when both ends are known as well as the search asked."""

    rate: float | None
    above: float | None
    complete: bool
    reason: str


def begin(search: Search) -> Seeking:
    return Seeking(search, search.start)


def step(seeking: Seeking, outcome: Outcome) -> Seeking | Answer:
    """What follows from the outcome of the try at `seeking.rate`."""
    tally = seeking.tallies.get(seeking.rate, Votes()).with_vote(outcome)
    after = replace(seeking, tallies={**seeking.tallies, seeking.rate: tally}, tries=seeking.tries + 1)
    following = _following(after, tally)
    if isinstance(following, str):
        return _answer(after, following)
    if after.tries >= after.search.tries:
        return give_up(after, f"{after.tries} tries were not enough")
    if tally.invalid_in_a_row >= INVALID_IN_A_ROW:
        return give_up(after, f"{tally.invalid_in_a_row} tries in a row at {after.rate:,.0f} msg/s were invalid")
    return replace(after, rate=following)


def give_up(seeking: Seeking, reason: str) -> Answer:
    """What is known when the search ends before its time."""
    return _answer(seeking, reason, complete=False)


def _following(after: Seeking, tally: Votes) -> float | str:
    """The next rate, or why none is needed."""
    search = after.search
    if tally.invalid_in_a_row or (_good(tally, search) is None):
        return after.rate
    low, high = gap(after)
    if low is None:
        surely = after.tallies[search.start].fails >= search.confirm.fails
        return "even the lowest rate fails" if surely else search.start
    if high is None and low < search.end:
        return min(low * 2, search.end)
    if high is not None and high > low * (1 + search.resolution.share) and _between(low, high) is not None:
        return _between(low, high) or low
    if after.tallies[low].passes < search.confirm.passes:
        return low
    if high is None:
        return "the highest rate to try passes"
    return high if after.tallies[high].fails < search.confirm.fails else "both ends are confirmed"


def gap(seeking: Seeking) -> tuple[float | None, float | None]:
    """The lowest rate that seems to fail, and the highest below it that seems to pass."""
    good = {rate: _good(tally, seeking.search) for rate, tally in seeking.tallies.items()}
    high = min((rate for rate, verdict in good.items() if verdict is False), default=None)
    below = (rate for rate, verdict in good.items() if verdict and (high is None or rate < high))
    return max(below, default=None), high


def _good(tally: Votes, search: Search) -> bool | None:
    """Whether a rate will do, by k of n once they are there, until then by the majority; None when votes are even."""
    if tally.passes >= search.confirm.passes or tally.fails >= search.confirm.fails:
        return tally.passes >= search.confirm.passes
    return None if tally.passes == tally.fails else tally.passes > tally.fails


def _between(low: float, high: float) -> float | None:
    """The middle of a gap as a ratio, in whole messages where that is possible."""
    middle = math.sqrt(low * high)
    for candidate in (float(round(middle)), middle):
        if low < candidate < high:
            return candidate
    return None


def _answer(seeking: Seeking, reason: str, *, complete: bool = True) -> Answer:
    confirm = seeking.search.confirm
    bad = [rate for rate, tally in seeking.tallies.items() if tally.fails >= confirm.fails]
    above = min(bad, default=None)
    good = [rate for rate, tally in seeking.tallies.items() if tally.passes >= confirm.passes]
    rate = max((rate for rate in good if above is None or rate < above), default=None)
    return Answer(rate, above, complete, reason)


def backlog_growth(due: Sequence[float], received: Sequence[float]) -> float | None:
    """By how many messages a second the backlog grows, as a straight line through what was due and had not arrived at
    the end of each second; None when the seconds are too few to tell. Messages that a sender was kept from sending are
    part of it: who waits for them does not care where they wait."""
    if len(due) < FEWEST_SECONDS:
        return None
    backlog = np.cumsum(np.asarray(due, float) - np.asarray(received, float))
    return float(np.polynomial.polynomial.polyfit(np.arange(len(backlog)), backlog, 1)[1])
