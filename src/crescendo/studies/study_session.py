"""How is a study carried out?

Every part is a campaign of its own in OUT/<name>-study/, so a study that was stopped continues where it was. A part
whose experiment is not there, or whose system cannot be started here, is reported as not measured, with the reason, and
the others go on. Prints nothing, and leaves no process behind.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from crescendo.campaigns import campaign_session
from crescendo.campaigns.campaign_loop import CampaignView
from crescendo.campaigns.campaign_session import campaign_directory
from crescendo.model.campaign import Campaign, check_campaign_metric
from crescendo.model.campaign_file import EXPERIMENT, campaign_from, load_campaign
from crescendo.model.errors import ConfigError
from crescendo.model.experiment_file import load_experiment, read_mapping, to_document
from crescendo.record.campaign_journal import CAMPAIGN_FILE, CampaignJournal, read_journal
from crescendo.record.stand_in import stand_in_remarks
from crescendo.report.data.study_document import (
    STUDY_FILE,
    StudyDocument,
    StudyPartResult,
    StudyPoint,
    read_study_document,
    write_study,
)
from crescendo.report.study_page import write_study_page
from crescendo.run import host_facts
from crescendo.run.analysis import Analyst
from crescendo.run.observer import RunObserver
from crescendo.studies.published_study import Study, StudyPart, read_study
from crescendo.studies.study_results import part_points

REPEATS = 3
"""Of an experiment, unless the caller says otherwise: the fewest that have an interval."""

OnPart = Callable[[StudyPart, int, int], None]
"""Called before a part: the part, its number from 1, and how many there are."""


@dataclass(frozen=True)
class FinishedStudy:
    """What a study found: its document, its page, and whether every part was measured."""

    directory: Path
    document: StudyDocument
    report: Path

    @property
    def complete(self) -> bool:
        return all(not part.reason for part in self.document.parts)


def study_directory(name: str, out: Path) -> Path:
    return out / f"{name}-study"


def part_campaign(part: StudyPart, experiments: Path, repeat: int | None) -> Campaign:
    """The campaign of one part. Raises ConfigError if its file is missing or does not fit.

    Without `repeat`, a campaign is repeated as its file says, and an experiment `REPEATS` times.
    """
    path = experiments / part.file
    for figure in part.figures:
        for metric in figure.metrics:
            try:
                check_campaign_metric(metric)
            except ValueError as err:
                raise ConfigError(str(err)) from None
    if not path.is_file():
        raise ConfigError(f"{path}: there is no such experiment yet; write it, or name its directory: --experiments")
    metrics = list(dict.fromkeys(metric for figure in part.figures for metric in figure.metrics))
    if EXPERIMENT in read_mapping(path, "name, workload and phases"):
        campaign = load_campaign(path)
        if repeat is None:
            return campaign
        return replace(campaign, settings=msgspec.structs.replace(campaign.settings, repeat=repeat))
    overrides = tuple(f"{key}={value}" for key, value in part.set.items())
    loaded = load_experiment(path, overrides)
    document = {EXPERIMENT: to_document(loaded), "repeat": repeat or REPEATS} | (
        {"metrics": metrics} if metrics else {}
    )
    return campaign_from(document, source=str(path), default_name=loaded.name)


def run_study(
    name: str,
    *,
    experiments: Path,
    out: Path,
    repeat: int | None = None,
    analyst: Analyst,
    parts: tuple[str, ...] = (),
    observer: RunObserver | None = None,
    view: CampaignView | None = None,
    on_part: OnPart | None = None,
    handle_signals: bool = False,
    durable: bool = True,
) -> FinishedStudy:
    """Run what is left of a study and write its page. With `parts`, the others stay as they are."""
    study, directory = read_study(name), study_directory(name, out)
    known = [part.name for part in study.parts]
    for wanted in parts:
        if wanted not in known:
            raise ConfigError(f"--part {wanted}: {name} has {', '.join(known)}")
    directory.mkdir(parents=True, exist_ok=True)
    earlier = _earlier_reasons(directory)
    results = []
    stopped = False
    for number, part in enumerate(study.parts, 1):
        chosen = not parts or part.name in parts
        try:
            campaign = part_campaign(part, experiments, repeat)
            if not stopped and chosen:
                if on_part is not None:
                    on_part(part, number, len(study.parts))
                finished = campaign_session.run(
                    campaign, out=directory, analyst=analyst, view=view, observer=observer, durable=durable,
                    handle_signals=handle_signals, command=["crescendo", "study", name],
                )  # fmt: skip
                stopped = finished.journal.ending == "interrupted"
            result = _result(part, campaign, campaign_directory(campaign, directory))
            if not chosen and all(point.ours is None for point in result.points):
                result = msgspec.structs.replace(result, reason=earlier.get(part.name) or result.reason)
            results.append(result)
        except ConfigError as err:
            results.append(_unmeasured(part, str(err)))
    document = study_document(name, study, results)
    write_study(directory, document)
    return FinishedStudy(directory, document, write_study_page(directory))


def _earlier_reasons(directory: Path) -> dict[str, str]:
    """Why parts were not measured when the study ran before; a part that is not run again keeps its reason."""
    if not (directory / STUDY_FILE).exists():
        return {}
    return {part.name: part.reason for part in read_study_document(directory).parts}


def study_document(name: str, study: Study, results: list[StudyPartResult]) -> StudyDocument:
    facts = host_facts.host()
    machine = ", ".join(str(facts[key]) for key in ("processor", "cores") if facts.get(key)) + " cores"
    return StudyDocument(name, study.title, study.source, machine, list(study.differs), results)


def _result(part: StudyPart, campaign: Campaign, directory: Path) -> StudyPartResult:
    if not (directory / CAMPAIGN_FILE).exists():
        return _unmeasured(part, "not run yet")
    journal: CampaignJournal = read_journal(directory)
    if not journal.counted:
        why = next((attempt.reason for attempt in reversed(journal.attempts) if attempt.reason), journal.ending)
        return _unmeasured(part, why or "no run of it counts")
    points = part_points(part, campaign, journal)
    page = directory / "campaign.html"
    reason = "" if journal.complete else journal.ending or "incomplete"
    return StudyPartResult(
        part.name, part.file, part.question, points, f"{directory.name}/{page.name}" if page.exists() else "", reason,
        stand_in_remarks([attempt.stand_ins for attempt in journal.counted]),
    )  # fmt: skip


def _unmeasured(part: StudyPart, reason: str) -> StudyPartResult:
    points = [
        StudyPoint(each.label, " + ".join(each.metrics), "rate" if each.per_second else each.metrics[0], each.value,
                   differs=each.differs)
        for each in part.figures
    ]  # fmt: skip
    return StudyPartResult(part.name, part.file, part.question, points, "", reason)
