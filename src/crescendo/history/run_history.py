"""Which runs are there, and what did each of them measure?

Reads analysed runs: those that a person names, and all in a directory or a lake. A run whose verdict is invalid proves
nothing and is left out; the caller learns which. Compares nothing.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from crescendo.history.fingerprints import fingerprint, machine_class
from crescendo.model.errors import ConfigError
from crescendo.model.metrics import RATE, metric_of
from crescendo.model.verdict import Outcome
from crescendo.pipeline.compare.runs import run_group
from crescendo.pipeline.lake.compacted import lake_entries
from crescendo.pipeline.lake.lake import LakeEntry
from crescendo.pipeline.storage.locations import LAKE_MARKER, Directory, is_url
from crescendo.record.campaign_journal import CAMPAIGN_FILE
from crescendo.record.manifest import Manifest, read_manifest
from crescendo.record.run_links import is_recording
from crescendo.record.run_metrics import summary_value
from crescendo.record.summary import SUMMARY, Summary, read_summary

DEFAULT_METRICS = (RATE, "response_p50", "response_p99", "transfer_p50", "transfer_p99")
"""What a gate judges unless metrics are named, as far as the runs have them."""


@dataclass(frozen=True)
class HistoricRun:
    """One analysed run."""

    name: str
    experiment: str
    fingerprint: str
    started_ns: int
    outcome: Outcome
    values: dict[str, float]
    path: str = ""  # of its directory, if that is known
    machine: str = ""


def named_runs(selectors: Sequence[str], lake: Path, metrics: Sequence[str]) -> list[HistoricRun]:
    """The runs that these selectors name, as in `compare`; they must have one fingerprint."""
    groups = [run_group(selector, lake) for selector in selectors]
    repeats = {each.name: each for group in groups for each in group.repeats}  # selectors may overlap
    found = [_run(Path(name).name, each.manifest, each.summary, metrics) for name, each in repeats.items()]
    prints = sorted({run.fingerprint for run in found})
    if len(prints) > 1:
        raise ConfigError(
            f"{', '.join(selectors)}: these runs have different fingerprints ({', '.join(prints)}), so their "
            "experiments or machines differ; name runs of one"
        )
    return found


def earlier_runs(place: str | Path, metrics: Sequence[str], wanted: str) -> list[HistoricRun]:
    """All runs with this fingerprint in a directory of runs or in a lake."""
    return [run for run in all_runs(place, metrics) if run.fingerprint == wanted]


def all_runs(place: str | Path, metrics: Sequence[str]) -> list[HistoricRun]:
    """All runs in a directory, those of its campaigns too, or in a lake, which may be at a URL.

    Damaged and unanalysed ones are skipped.
    """
    if is_url(str(place)):
        from crescendo.pipeline.lake.remote_entries import remote_entries  # Spark

        entries: Iterable[LakeEntry] = remote_entries(str(place))
    elif (Path(place) / LAKE_MARKER).exists():
        entries = lake_entries(Directory(Path(place)))
    else:
        return _in_directory(Path(place), metrics)
    return [_run(each.run, each.manifest, each.summary, metrics, each.path) for each in entries]


def _in_directory(place: Path, metrics: Sequence[str]) -> list[HistoricRun]:
    found = []
    for directory in sorted(place.iterdir()) if place.is_dir() else ():
        if (directory / CAMPAIGN_FILE).exists() and not directory.is_symlink():
            found += _in_directory(directory, metrics)
        elif is_recording(directory) and (directory / SUMMARY).exists():
            try:
                manifest, summary = read_manifest(directory), read_summary(directory)
            except ConfigError:
                continue
            found.append(_run(directory.name, manifest, summary, metrics, str(directory)))
    return found


def _run(name: str, manifest: Manifest, summary: Summary, metrics: Sequence[str], path: str = "") -> HistoricRun:
    values = {metric: summary_value(summary, metric) for metric in metrics or DEFAULT_METRICS}
    known = {metric: value for metric, value in values.items() if value is not None and value > 0}
    experiment = str(manifest.experiment.get("name", ""))
    return HistoricRun(
        name, experiment, fingerprint(manifest), manifest.started_ns, summary.verdict.outcome, known, path,
        machine_class(manifest),
    )  # fmt: skip


def check_metrics(metrics: Sequence[str]) -> None:
    """Rates and latencies have a direction and a logarithm; counts are judged by checks."""
    for name in metrics:
        try:
            metric = metric_of(name)
        except ValueError as err:
            raise ConfigError(f"--metric {name}: {err}") from None
        if metric.latency is None and metric.name != RATE:
            raise ConfigError(f"--metric {name}: a gate judges {RATE} and latencies; put a check on counts instead")
