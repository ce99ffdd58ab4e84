"""What did the factors of a campaign change, in one small file?

`effects.json` lies next to the journal of a campaign and is read by its page and by other programs. Values are in base
units: nanoseconds, messages, messages per second. A number without evidence is null. Computes nothing.
"""

from pathlib import Path

from msgspec import Struct

from crescendo.record.documents import read_document, write_document

EFFECTS_FILE = "effects.json"
SCHEMA = 1


class FactorEffect(Struct, frozen=True):
    """One factor or interaction. `value` is how far its last level lies from the mean; on a logarithmic scale, how
    many times the mean it is."""

    name: str
    order: int  # 1 for a factor, 2 for an interaction of two
    share: float  # of the variation
    value: float | None = None
    low: float | None = None
    high: float | None = None
    significant: bool | None = None  # null when there is nothing to judge it by
    p_value: float | None = None
    aliases: list[str] = []  # what this design cannot separate from it
    sentence: str = ""


class Interaction(Struct, frozen=True):
    """The means of all combinations of the levels of two factors; null where nothing was counted."""

    factors: tuple[str, str]
    levels: tuple[list[str], list[str]]
    means: list[list[float | None]]


class ResidualPoint(Struct, frozen=True):
    """One repeat: the mean of its point, its distance from it, and the normal quantile of its rank."""

    fitted: float
    residual: float
    normal: float


class MetricEffects(Struct, frozen=True):
    """The effects on one metric, the largest first."""

    metric: str
    method: str  # two-level, variance, or repeats
    scale: str = "linear"  # or logarithmic
    scale_reason: str = ""
    basis: str = ""  # repeats, lenth, lack of fit, or none: what intervals and significance rest on
    mean: float | None = None
    low: float | None = None
    high: float | None = None
    error_share: float = 0.0
    effects: list[FactorEffect] = []
    interactions: list[Interaction] = []
    residuals: list[ResidualPoint] = []
    values: list[list[float]] = []  # of each point
    notes: list[str] = []


class FittedLaw(Struct, frozen=True):
    """A law of scalability through the measured throughputs."""

    law: str  # usl or amdahl
    coefficients: dict[str, tuple[float, float, float]]  # value and ends of its 95 % interval
    residual_share: float
    peak: float | None = None  # the size with the highest throughput
    warnings: list[str] = []
    curve: list[tuple[float, float]] = []  # size and throughput, over the measured sizes


class ScalingCurve(Struct, frozen=True):
    """How a throughput grows with a factor; `laws` is empty when there is nothing to fit, and `reason` says why."""

    factor: str
    metric: str
    sizes: list[float]
    values: list[list[float]]  # of each size
    laws: list[FittedLaw] = []
    reason: str = ""


class LoadKnee(Struct, frozen=True):
    """Where latency begins to grow faster than throughput, over the levels of a factor."""

    factor: str
    metric: str
    loads: list[float]
    throughputs: list[float]
    latencies: list[float]
    knee: float
    warning: str = ""


class CampaignEffects(Struct, frozen=True):
    """Every metric of a campaign, and how throughput and latency follow factors with four or more numbers."""

    name: str
    metrics: list[MetricEffects]
    scaling: list[ScalingCurve] = []
    knees: list[LoadKnee] = []
    schema: int = SCHEMA


def write_effects(directory: Path, effects: CampaignEffects) -> None:
    write_document(directory / EFFECTS_FILE, effects)


def read_effects(directory: Path) -> CampaignEffects:
    return read_document(
        directory / EFFECTS_FILE,
        CampaignEffects,
        noun="the effects of a campaign",
        missing=f"{directory}: it has no {EFFECTS_FILE}; run the campaign",
        version_field="schema",
        version=SCHEMA,
        supported=f"{SCHEMA}; run the campaign again, which only recomputes them",
    )
