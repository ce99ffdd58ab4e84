"""What did the parts of a study measure, next to the published figures?

Takes the journals of its campaigns; a figure may add up several metrics, be about one combination of levels, or be a
count per second. Reads no runs and judges nothing: how far two numbers are apart is for readers to weigh.
"""

from collections.abc import Mapping, Sequence

from crescendo.model.campaign import Campaign
from crescendo.model.schedule import measure_ns
from crescendo.pipeline.compare.intervals import mean_interval
from crescendo.record.campaign_journal import CampaignJournal
from crescendo.report.data.study_document import StudyPoint
from crescendo.studies.published_study import PublishedFigure, StudyPart

LEAST_REPEATS = 3
"""For an interval: with two runs it is wider than anything that it could tell."""


def part_points(part: StudyPart, campaign: Campaign, journal: CampaignJournal) -> list[StudyPoint]:
    """One point per published figure; without any, the mean of every metric and combination of levels."""
    seconds = (measure_ns(campaign.experiment(0)) or 0) / 1e9
    if part.figures:
        return [_point(figure, journal, seconds) for figure in part.figures]
    found = []
    for metric in journal.metrics:
        for number, point in enumerate(journal.points):
            label = ", ".join([metric, *point.levels])
            values = journal.values_of(metric)[number]
            found.append(_measured(StudyPoint(label, metric, metric, None), values))
    return found


def _point(figure: PublishedFigure, journal: CampaignJournal, seconds: float) -> StudyPoint:
    metrics = figure.metrics
    per_second = figure.per_second and seconds > 0
    named = " + ".join(metrics) + (" per second" if per_second else "")
    # A count per second is written like a rate.
    point = StudyPoint(figure.label, named, "rate" if per_second else metrics[0], figure.value, differs=figure.differs)
    values = [
        sum(attempt.values[metric] for metric in metrics) / (seconds if per_second else 1.0)
        for attempt in journal.counted
        if all(metric in attempt.values for metric in metrics) and _is_at(journal, attempt.point, figure.at)
    ]
    return _measured(point, values)


def _is_at(journal: CampaignJournal, point: int, wanted: Mapping[str, str]) -> bool:
    levels = {factor.name: level for factor, level in zip(journal.factors, journal.points[point].levels, strict=True)}
    return all(levels.get(name) == level for name, level in wanted.items())


def _measured(point: StudyPoint, values: Sequence[float]) -> StudyPoint:
    if not values:
        return point
    interval = mean_interval(list(values)) if len(values) >= LEAST_REPEATS else None
    low, high = (None, None) if interval is None else (interval.low, interval.high)
    mean = sum(values) / len(values)
    return StudyPoint(
        point.label, point.metric, point.unit_metric, point.published, mean, low, high, len(values), point.differs
    )
