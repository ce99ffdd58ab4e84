"""What did the factors change, and how certain is that?

From the journal of a campaign to its effects: picks the method that fits the design and the scale that fits the
residuals, names what cannot be separated, and says each result in a sentence. `pipeline.effects` does the arithmetic.
"""

import math
from collections.abc import Sequence
from itertools import combinations

import numpy as np

from crescendo.campaigns.scaling import load_knees, scaling_curves
from crescendo.model.alias_structure import AliasStructure
from crescendo.model.arrays import Floats
from crescendo.model.campaign import format_metric
from crescendo.model.designs import DesignKind, defining_words
from crescendo.pipeline.compare.intervals import mean_interval
from crescendo.pipeline.effects.anova import Term, variance_table
from crescendo.pipeline.effects.residuals import residuals_of, scale_advice
from crescendo.pipeline.effects.two_level import Effect, two_level_effects
from crescendo.record.campaign_effects import (
    CampaignEffects,
    FactorEffect,
    Interaction,
    MetricEffects,
    ResidualPoint,
)
from crescendo.record.campaign_journal import CampaignJournal

TWO_LEVEL, VARIANCE, REPEATED = "two-level", "variance", "repeats"
LINEAR, LOGARITHMIC = "linear", "logarithmic"
_TWO_LEVEL_DESIGNS = {DesignKind.TWO_LEVEL, DesignKind.FRACTION}
MAX_INTERACTION_PLOTS = 6


def campaign_effects(journal: CampaignJournal) -> CampaignEffects:
    """The effects on every metric of a campaign, as far as it has come."""
    return CampaignEffects(
        journal.name,
        [metric_effects(journal, metric) for metric in journal.metrics],
        scaling_curves(journal),
        load_knees(journal),
    )


def metric_effects(journal: CampaignJournal, metric: str) -> MetricEffects:
    values = journal.values_of(metric)
    measured = [number for number, each in enumerate(values) if each]
    if not measured:
        return MetricEffects(metric, REPEATED, notes=["no run that counts has a value of this metric"])
    if not journal.factors:
        return _repeated(metric, values)
    flat = {value for point in values for value in point}
    if len(flat) == 1:  # as with losses where there are none: shares of no variation would mean nothing
        note = "the same in every run: no factor changed it"
        return MetricEffects(metric, REPEATED, mean=flat.pop(), values=values, notes=[note])
    advice = scale_advice(values)
    notes = []
    if len(measured) < len(values):
        notes.append(f"{len(values) - len(measured)} of {len(values)} points have no value")
    scaled = [[math.log(each) for each in point] for point in values] if advice.logarithmic else values
    matrix = np.array([point.row for point in journal.points])
    complete = len(measured) == len(values)
    is_two_level = all(len(factor.levels) == 2 for factor in journal.factors)
    logs = advice.logarithmic
    scale, residuals = LOGARITHMIC if logs else LINEAR, _residuals(scaled)
    interactions = _interactions(journal, values)
    names = [factor.name for factor in journal.factors]
    kind = DesignKind(journal.design)
    if complete and is_two_level and (kind in _TWO_LEVEL_DESIGNS or kind is DesignKind.FULL):
        aliases = _aliases(journal)
        found = two_level_effects(names, matrix, scaled, aliases)
        effects = [_two_level(journal, metric, each, logs) for each in found.effects]
        return MetricEffects(
            metric, TWO_LEVEL, scale, advice.reason, found.basis, _unscaled(found.mean, logs), None, None,
            found.error_share, effects, interactions, residuals, values, notes,
        )  # fmt: skip
    rows = [scaled[number] for number in measured]
    if len(measured) <= len(names):
        return MetricEffects(metric, VARIANCE, values=values, notes=[*notes, "too few points to separate the factors"])
    table = variance_table(names, matrix[measured], rows, linear=kind is DesignKind.LATIN_HYPERCUBE)
    if table.not_separable:
        notes.append(f"this design cannot separate {', '.join(table.not_separable)}")
    basis = "repeats" if table.error_is_pure else "lack of fit" if table.error_freedom else "none"
    effects = [_of_term(journal, metric, term, logs) for term in table.terms]
    return MetricEffects(
        metric, VARIANCE, scale, advice.reason, basis, _unscaled(table.mean, logs), None, None,
        table.error_share, effects, interactions, residuals, values, notes,
    )  # fmt: skip


def _repeated(metric: str, values: list[list[float]]) -> MetricEffects:
    interval = mean_interval(values[0])
    if interval is None:
        return MetricEffects(metric, REPEATED, mean=values[0][0], values=values)
    return MetricEffects(
        metric, REPEATED, mean=interval.value, low=interval.low, high=interval.high, basis="repeats", values=values,
        residuals=_residuals(values),
    )  # fmt: skip


def _aliases(journal: CampaignJournal) -> AliasStructure | None:
    if not journal.generators:
        return None
    names = [factor.name for factor in journal.factors]
    return AliasStructure(tuple(names), tuple(defining_words(journal.generators, names)))


def _residuals(values: Sequence[Sequence[float]]) -> list[ResidualPoint]:
    if not any(len(each) > 1 for each in values):
        return []
    return [ResidualPoint(each.fitted, each.residual, each.normal) for each in residuals_of([v for v in values if v])]


def _two_level(journal: CampaignJournal, metric: str, effect: Effect, logs: bool) -> FactorEffect:
    ends = [None if end is None else _unscaled(end, logs) for end in (effect.low, effect.high)]
    value = _unscaled(effect.value, logs)
    return FactorEffect(
        effect.name, len(effect.factors), effect.share, value, ends[0], ends[1], effect.significant, None,
        list(effect.aliases), _sentence(journal, metric, effect, logs),
    )  # fmt: skip


def _of_term(journal: CampaignJournal, metric: str, term: Term, logs: bool) -> FactorEffect:
    last = term.levels[-1] if term.levels else None
    value = None if last is None else _unscaled(last.value, logs)
    ends = [None if last is None or end is None else _unscaled(end, logs) for end in
            ((last.low, last.high) if last is not None else (None, None))]  # fmt: skip
    return FactorEffect(
        term.name, len(term.factors), term.share, value, ends[0], ends[1], term.significant, term.p_value, [],
        _term_sentence(journal, metric, term, logs),
    )  # fmt: skip


def _sentence(journal: CampaignJournal, metric: str, effect: Effect, logs: bool) -> str:
    share = f"{effect.share:.1%} of the variation"
    if effect.significant is False:
        return f"No effect of {effect.name} on {metric} was found ({share})."
    sure = "" if effect.significant else "; how certain that is, nobody knows without repeats"
    alias = f" It cannot be separated from {', '.join(effect.aliases)}." if effect.aliases else ""
    if len(effect.factors) > 1:
        return f"{effect.name} act together on {metric}: {share}{sure}.{alias}"
    factor = journal.factors[effect.factors[0]]
    moved = _change(metric, 2 * effect.value, logs)
    ends = "" if effect.low is None or effect.high is None else _span(metric, 2 * effect.low, 2 * effect.high, logs)
    return f"From {factor.levels[0]} to {factor.levels[1]}, {factor.name} {moved}{ends}: {share}{sure}.{alias}"


def _term_sentence(journal: CampaignJournal, metric: str, term: Term, logs: bool) -> str:
    share = f"{term.share:.1%} of the variation"
    if term.significant is False:
        return f"No effect of {term.name} on {metric} was found ({share})."
    sure = f" (p = {term.p_value:.2g})" if term.p_value is not None else ", without repeats to judge it by"
    if len(term.factors) > 1:
        return f"{term.name} act together on {metric}: {share}{sure}."
    factor = journal.factors[term.factors[0]]
    ordered = sorted(term.levels, key=lambda each: each.value)
    if len(ordered) < 2:
        moved = _change(metric, 2 * term.levels[-1].value, logs)
        return f"From {factor.levels[0]} to {factor.levels[-1]}, {factor.name} {moved}: {share}{sure}."
    low, high = factor.levels[ordered[0].level], factor.levels[ordered[-1].level]
    moved = _change(metric, ordered[-1].value - ordered[0].value, logs)
    return f"{factor.name} {moved} from its lowest mean, at {low}, to its highest, at {high}: {share}{sure}."


def _change(metric: str, moved: float, logs: bool) -> str:
    if logs:
        return f"multiplies {metric} by {math.exp(moved):.3g}"
    return f"{'raises' if moved > 0 else 'lowers'} {metric} by {format_metric(metric, abs(moved))}"


def _span(metric: str, low: float, high: float, logs: bool) -> str:
    if logs:
        return f" ({math.exp(low):.3g} to {math.exp(high):.3g})"
    ends = sorted((low, high), key=abs)
    if ends[0] * ends[1] < 0:
        return f" ({_signed(metric, low)} to {_signed(metric, high)})"
    return f" ({format_metric(metric, abs(ends[0]))} to {format_metric(metric, abs(ends[1]))})"


def _signed(metric: str, value: float) -> str:
    return f"{'−' if value < 0 else '+'}{format_metric(metric, abs(value))}"


def _unscaled(value: float, logs: bool) -> float:
    return math.exp(min(value, 700.0)) if logs else value


def _interactions(journal: CampaignJournal, values: list[list[float]]) -> list[Interaction]:
    """Means by pairs of factors, the strongest interactions first, for designs with few levels."""
    if journal.design == DesignKind.LATIN_HYPERCUBE or len(journal.factors) < 2:
        return []
    matrix: Floats = np.array([point.row for point in journal.points])
    found = []
    for one, other in combinations(range(len(journal.factors)), 2):
        levels = journal.factors[one].levels, journal.factors[other].levels
        means: list[list[float | None]] = []
        for first in range(len(levels[0])):
            row: list[float | None] = []
            for second in range(len(levels[1])):
                here = [value for point, each in enumerate(values) for value in each
                        if matrix[point, one] == first and matrix[point, other] == second]  # fmt: skip
                row.append(float(np.mean(here)) if here else None)
            means.append(row)
        found.append(Interaction((journal.factors[one].name, journal.factors[other].name), levels, means))
    return sorted(found, key=_strength, reverse=True)[:MAX_INTERACTION_PLOTS]


def _strength(interaction: Interaction) -> float:
    """How far the means are from what the two factors would do one by one; 0 if some combinations were not run."""
    cells = np.array(interaction.means, float)
    if np.isnan(cells).any():
        return 0.0
    additive = cells.mean(axis=1, keepdims=True) + cells.mean(axis=0, keepdims=True) - cells.mean()
    return float(((cells - additive) ** 2).mean())
