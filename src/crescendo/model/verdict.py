"""Did the run pass, did it fail, or can nothing be said?

A check compares one measured value with one bound, and carries the reasons to doubt its evidence. The rule of three:
a run fails if a check fails on sound evidence; otherwise it is invalid if any check is; otherwise it passes. Computes
from the values it is given; never reads a recording.
"""

import operator
import re
from collections.abc import Callable, Collection
from decimal import Decimal
from enum import StrEnum
from typing import Annotated

from msgspec import Struct

from crescendo.model.metrics import CONSERVATION, DUPLICATED, LOST, LOST_ACKNOWLEDGED, RATE, metric_of, split_metric
from crescendo.model.own_delay import explains
from crescendo.model.suggestions import listing
from crescendo.model.units import Duration, format_ns

_OPERATORS: dict[str, Callable[[float, float], bool]] = {
    "<=": operator.le, ">=": operator.ge, "<": operator.lt, ">": operator.gt, "==": operator.eq,
}  # fmt: skip
_BOUND = re.compile(r"\s*(<=|>=|==|<|>)\s*([0-9]+(?:\.[0-9]+)?)\s*(?:([A-Za-zµ/]+)|(of offered))?\s*")


class Outcome(StrEnum):
    """Whether a check or a run passed; invalid when the evidence does not support a claim."""

    PASS = "pass"  # noqa: S105
    FAIL = "fail"
    INVALID = "invalid"


class Bound(str):
    """A bound as written, such as `<= 200ms`. Its value is in base units: nanoseconds, messages, messages/second."""

    __slots__ = ()

    @classmethod
    def parse(cls, text: object) -> "Bound":
        if isinstance(text, int | float) and not isinstance(text, bool):
            return cls.parse(f"== {Decimal(str(text)):f}")
        bound = cls(" ".join(text.split())) if isinstance(text, str) else cls()
        if _BOUND.fullmatch(bound) is None:
            raise ValueError(f"{text!r} is not a valid bound; write a number, '<= 200ms' or '>= 0.99 of offered'")
        bound.limit(0.0)  # rejects an unknown unit
        return bound

    @property
    def op(self) -> str:
        return self._parts()[0]

    def limit(self, offered: float) -> float:
        """The value to compare with; `offered` is the rate that `of offered` refers to."""
        _, number, unit, of_offered = self._parts()
        if unit in {None, "msg/s"}:
            return float(number) * (offered if of_offered else 1.0)
        return float(Duration.parse(f"{number}{unit}"))

    @property
    def unit(self) -> str:
        """Empty for a plain number, `of offered` for a fraction of the offered rate."""
        _, _, unit, of_offered = self._parts()
        return of_offered or unit or ""

    def holds(self, value: float, offered: float = 0.0) -> bool:
        return _OPERATORS[self.op](value, self.limit(offered))

    @property
    def caps(self) -> bool:
        """Whether the bound is an upper limit."""
        return self.op in {"<=", "<", "=="}

    def _parts(self) -> tuple[str, str, str | None, str | None]:
        match = _BOUND.fullmatch(self)
        if match is None:
            raise ValueError(f"{str(self)!r} is not a valid bound")
        return match[1], match[2], match[3], match[4]


class Check(Struct, frozen=True):
    """One metric against its bound, with the reasons to doubt its evidence (none if it is sound)."""

    metric: Annotated[str, "what was checked; a slice is named before it: `orders.response_p99`"]
    bound: Annotated[str, "the bound as written"]
    value: Annotated[float | None, "measured value in base units; null if there is none"]
    limit: Annotated[float, "the bound's value in base units"]
    outcome: Annotated[Outcome, "`pass`, `fail` or `invalid`"]
    reasons: Annotated[list[str], "doubts about its evidence"] = []


class Verdict(Struct, frozen=True):
    """What may be claimed about the run, and why."""

    outcome: Annotated[Outcome, "`pass`, `fail` or `invalid`"]
    checks: Annotated[list[Check], "in the order of the experiment file"]
    reasons: Annotated[list[str], "doubts about the run as a whole"] = []


def stopped_check(metric: str, value_ns: int, limit_ns: int, peer: str, without_ns: float) -> Check:
    """A run that was stopped by its own limit has failed, unless own delay could explain it.

    `without_ns` is the value without own delay.
    """
    reasons = [f"the run was stopped: {peer} measured this in one second"]
    outcome = Outcome.FAIL
    if explains(lambda value: value > limit_ns, value_ns, without_ns):
        outcome = Outcome.INVALID
        reasons.append(
            f"own delay could explain it: it would be {format_ns(without_ns)} without it and what overlaps it"
        )
    return Check(metric, f"<= {Duration(limit_ns)} in every second", value_ns, limit_ns, outcome, reasons)


def check_metric(metric: str, slices: Collection[str] = (), *, has_clients: bool = False) -> None:
    """Reject a metric that does not exist, or one of a slice that does not."""
    found, (slice_name, _) = metric_of(metric), split_metric(metric)
    if slice_name and slice_name not in slices:
        hint = listing(slice_name, slices) if slices else "there are none"
        raise ValueError(f"{metric}: no group, destination or protocol is called {slice_name!r}; {hint}")
    if found.of_clients and slice_name:
        raise ValueError(f"{metric}: clients count it for all groups together; write {found.name}")
    if found.of_clients and not has_clients:
        raise ValueError(f"{metric}: clients measure it, and this experiment has none")


def check_bound(metric: str, bound: Bound) -> None:
    """Reject a bound whose unit does not fit its metric."""
    unit = metric_of(metric).unit
    if not unit.fits(bound.unit):
        raise ValueError(f"{metric}: {str(bound)!r} does not fit; it takes {unit.wanted}")


def default_checks(*, bounded: bool) -> dict[str, Bound]:
    """What any sound run should pass: nothing lost, and the offered load carried."""
    return {LOST: Bound.parse(0), RATE: Bound.parse(">= 0.99 of offered" if bounded else "> 0")}


def client_checks(given: dict[str, Bound]) -> dict[str, Bound]:
    """The given checks and those that always apply to clients. Clients set their own rate, so none is checked."""
    lost = LOST_ACKNOWLEDGED if LOST_ACKNOWLEDGED in given else LOST
    return {**{metric: Bound.parse(0) for metric in (CONSERVATION, lost, DUPLICATED)}, **given}


def judge_check(metric: str, bound: Bound, value: float | None, *, offered: float, reasons: list[str]) -> Check:
    """Compare one value. With doubts about its evidence the check is invalid, unless the failure is proven anyway."""
    limit = bound.limit(offered)
    if value is None:
        outcome, reasons = Outcome.INVALID, reasons or ["nothing was measured"]
    elif not reasons:
        outcome = Outcome.PASS if bound.holds(value, offered) else Outcome.FAIL
    elif metric_of(metric).additive and bound.caps and value > limit:
        outcome = Outcome.FAIL  # missing evidence could only add to it
    else:
        outcome = Outcome.INVALID
    return Check(metric=metric, bound=str(bound), value=value, limit=limit, outcome=outcome, reasons=reasons)


def judge(checks: list[Check], reasons: list[str]) -> Verdict:
    """Apply the rule of three. `reasons` are doubts about the run as a whole."""
    outcomes = {check.outcome for check in checks}
    if Outcome.FAIL in outcomes:
        outcome = Outcome.FAIL
    elif Outcome.INVALID in outcomes or reasons or not checks:
        outcome = Outcome.INVALID
    else:
        outcome = Outcome.PASS
    return Verdict(outcome=outcome, checks=checks, reasons=reasons)
