"""Which run of a campaign comes next?

A pure function of the campaign and of what was done so far, so that a campaign that was killed continues as if it had
not been: blocks of all points, each in its own order; invalid runs again, up to the stated number of times; more blocks
while an interval is too wide; nothing more when the budget is spent. Starts nothing and reads no clock.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from crescendo.model.campaign import Campaign
from crescendo.pipeline.compare.intervals import mean_interval
from crescendo.record.campaign_journal import Attempt, AttemptState

NS_PER_S = 1e9


@dataclass(frozen=True)
class NextRun:
    """The repeat of a point to run now, and how many runs are left with it, as far as is known."""

    point: int
    repeat: int
    remaining: int


@dataclass(frozen=True)
class Ending:
    """Why nothing is left to run. Complete: every repeat of every point was counted."""

    reason: str
    complete: bool


Slot = tuple[int, int]
"""A point and one of its repeats: what is counted exactly once."""


@dataclass(frozen=True)
class _Done:
    counted: frozenset[Slot]
    given_up: frozenset[Slot]

    @property
    def slots(self) -> frozenset[Slot]:
        return self.counted | self.given_up


def next_run(campaign: Campaign, attempts: Sequence[Attempt], run_seconds: float) -> NextRun | Ending:
    """The next run, or why there is none. run_seconds: how long a run takes, about."""
    done = _done(campaign, attempts)
    left = planned_runs(campaign, attempts)
    if not left:
        failed = len(done.given_up)
        if failed:
            return Ending(f"{failed} of {len(done.slots)} runs were invalid however often they were repeated", False)
        return Ending("every run was counted", True)
    budget = campaign.settings.budget
    spent_s = sum(attempt.seconds for attempt in attempts)
    if budget is not None and spent_s + run_seconds > budget / NS_PER_S:
        return Ending(f"the budget of {budget} is spent, with {len(left)} runs left", False)
    point, repeat = left[0]
    return NextRun(point, repeat, len(left))


def planned_runs(campaign: Campaign, attempts: Sequence[Attempt]) -> list[Slot]:
    """What is left to run, in its order, as far as is known: intervals may ask for more."""
    return _open_slots(campaign, attempts, _done(campaign, attempts))


def _done(campaign: Campaign, attempts: Sequence[Attempt]) -> _Done:
    counted: set[Slot] = set()
    invalid: defaultdict[Slot, int] = defaultdict(int)
    for attempt in attempts:
        slot = (attempt.point, attempt.repeat)
        if attempt.state is AttemptState.COUNTED:
            counted.add(slot)
        elif attempt.state is AttemptState.INVALID:
            invalid[slot] += 1
    hopeless = {slot for slot, times in invalid.items() if times > campaign.settings.retries}
    return _Done(frozenset(counted), frozenset(hopeless - counted))


def _open_slots(campaign: Campaign, attempts: Sequence[Attempt], done: _Done) -> list[Slot]:
    """Block by block, in the order of each block."""
    until = campaign.settings.until
    slots = [
        (point, block)
        for block in range(campaign.settings.repeat)
        for point in campaign.block(block)
        if (point, block) not in done.slots
    ]
    if slots or until is None:
        return slots
    for block in range(campaign.settings.repeat, until.repeats):
        wide = [point for point in campaign.block(block) if _is_wide(campaign, point, block, attempts)]
        slots = [(point, block) for point in wide if (point, block) not in done.slots]
        if slots:
            return slots
    return []


def _is_wide(campaign: Campaign, point: int, block: int, attempts: Sequence[Attempt]) -> bool:
    """Whether the interval of a point is still too wide, by the blocks before this one."""
    until = campaign.settings.until
    if until is None:
        return False
    values = [
        attempt.values[until.metric]
        for attempt in attempts
        if attempt.point == point
        and attempt.repeat < block
        and attempt.state is AttemptState.COUNTED
        and until.metric in attempt.values
    ]
    interval = mean_interval(values)
    if interval is None:
        return True
    return interval.high - interval.low > until.narrower * abs(interval.value)
