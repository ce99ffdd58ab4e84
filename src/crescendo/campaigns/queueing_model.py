"""How do measured runs and a queueing model become one document?

Finds the runs in what a person names, runs or directories of campaigns, and puts measurements, predictions and a change
next to each other. The arithmetic is in `pipeline.queueing`.
"""

from collections.abc import Sequence
from pathlib import Path

from crescendo.model.errors import ConfigError
from crescendo.pipeline.queueing.measured_network import (
    MeasuredLoad,
    Prediction,
    changed,
    measured_load,
    predictions,
)
from crescendo.record.campaign_journal import CAMPAIGN_FILE, read_journal
from crescendo.report.data.model_document import ModelDocument, ModelRow, ModelStation

_NS = 1e9


def model_of(places: Sequence[Path], stations: Sequence[str], what_if: Sequence[str]) -> ModelDocument:
    """The document of these runs. `stations` correct the model itself, `what_if` asks about a change."""
    loads = [measured_load(run) for place in places for run in _runs(place)]
    if not loads:
        raise ConfigError(f"{', '.join(map(str, places))}: there is no run that counts")
    before = predictions(loads, stations)
    after = predictions(loads, [*stations, *what_if]) if what_if else [None] * len(before)
    base = min(loads, key=lambda each: each.clients)
    shown = changed(base.stations, stations)
    return ModelDocument(
        [
            ModelStation(name, each.seconds * _NS, None if each.is_delay else each.servers)
            for name, each in shown.items()
        ],
        base.think_s * _NS,
        base.run,
        list(what_if),
        [_row(one, other) for one, other in zip(before, after, strict=True)],
    )


def _runs(place: Path) -> list[Path]:
    if not (place / CAMPAIGN_FILE).exists():
        return [place]
    return [place / attempt.run for attempt in read_journal(place).counted if attempt.run]


def _row(one: Prediction, other: Prediction | None) -> ModelRow:
    load: MeasuredLoad = one.measured
    return ModelRow(
        run=load.run,
        clients=load.clients,
        throughput=load.throughput,
        response_ns=load.response_s * _NS,
        predicted_throughput=one.predicted.throughput,
        predicted_response_ns=one.predicted.response_s * _NS,
        changed_throughput=None if other is None else other.predicted.throughput,
        changed_response_ns=None if other is None else other.predicted.response_s * _NS,
        in_system=one.laws.in_system,
        utilization=one.laws.utilization,
        bottleneck=one.laws.bottleneck,
        most_throughput=one.laws.bounds.most_throughput,
        waited_ns=load.waited_s * _NS,
        open_wait_ns=None if one.open_wait_s is None else one.open_wait_s * _NS,
        open_wait_general_ns=None if one.open_wait_general_s is None else one.open_wait_general_s * _NS,
    )
