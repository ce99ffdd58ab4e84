"""How is a campaign carried out, and continued after a crash?

`next_run` decides; this module starts one run after the other and keeps the journal. The journal says that a run starts
before it does, so a killed campaign knows which run it was in: a recording that was sealed by then is judged and
counted, any other is kept as interrupted and its slot runs again. So every slot is counted once, however often the
campaign was killed. How a run is carried out and judged is given by the caller.
"""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

import msgspec

from crescendo.campaigns.next_run import Ending, NextRun, next_run
from crescendo.model.campaign import Campaign, default_metrics, describe_levels
from crescendo.model.errors import ConfigError, CrescendoError, LostError
from crescendo.model.experiment import Experiment
from crescendo.model.redaction import redact_value
from crescendo.model.schedule import measure_ns
from crescendo.model.verdict import Outcome
from crescendo.record.campaign_journal import (
    CAMPAIGN_FILE,
    Attempt,
    AttemptState,
    CampaignJournal,
    DesignPoint,
    JournalFactor,
    read_journal,
    write_journal,
)
from crescendo.record.manifest import MANIFEST, State, read_manifest
from crescendo.record.run_metrics import metric_values
from crescendo.record.stand_in import stand_ins_of
from crescendo.record.summary import Summary, read_summary

OVERHEAD_S = 8.0
"""Start, drain and analysis of a run, about, until the first run has shown how long they take."""

LOCK_FILE = "campaign.lock"


class RunCarrier(Protocol):
    """Carries out and judges the runs of a campaign."""

    def run(self, experiment: Experiment, out: Path) -> tuple[Path, Summary] | None:
        """The directory and the summary of a new run; None if the user interrupted it."""

    def judge(self, run_dir: Path) -> Summary:
        """The summary of a recording that a killed campaign left behind."""


class CampaignView:
    """Follows a campaign; every method does nothing."""

    def on_next(self, planned: NextRun, levels: str, done: int, left_s: float | None) -> None:
        """A run starts: its levels, how many runs are done, and about how long the rest takes."""

    def on_attempt(self, attempt: Attempt) -> None:
        """A run has ended."""


def expected_seconds(campaign: Campaign, attempts: list[Attempt] | None = None) -> float:
    """How long a run takes, about: as long as those before, or as its phases say."""
    ended = {AttemptState.COUNTED, AttemptState.INVALID}
    known = [each.seconds for each in attempts or () if each.state in ended and each.seconds > 0]  # 0: recovered
    if known:
        return sum(known) / len(known)
    experiment = campaign.experiment(0)
    return (experiment.phases.warmup + (measure_ns(experiment) or 0)) / 1e9 + OVERHEAD_S


def new_journal(campaign: Campaign) -> CampaignJournal:
    """The journal of a campaign that has not begun."""
    aliases = campaign.settings.design.aliases(campaign.factors)
    factors = [
        JournalFactor(
            factor.name, [str(redact_value(level, factor.name)) for level in factor.levels], list(factor.settings[0])
        )
        for factor in campaign.factors
    ]
    points = [
        DesignPoint(
            list(point.row),
            [
                str(redact_value(level, factor.name))
                for factor, level in zip(campaign.factors, point.levels, strict=True)
            ],
        )
        for point in campaign.points
    ]
    return CampaignJournal(
        name=campaign.name,
        fingerprint=campaign.fingerprint,
        design=str(campaign.settings.design.kind),
        factors=factors,
        points=points,
        metrics=_metrics(campaign),
        generators=dict(campaign.settings.design.generators),
        aliases=[] if aliases is None else aliases.lines(),
        repeat=campaign.settings.repeat,
        seed=campaign.settings.seed,
        experiment=redact_value(dict(campaign.document)),
    )


def open_journal(campaign: Campaign, directory: Path) -> CampaignJournal:
    """The journal of this campaign in a directory: a new one, or the one to continue."""
    if not (directory / CAMPAIGN_FILE).exists():
        return new_journal(campaign)
    found = read_journal(directory)
    if found.fingerprint != campaign.fingerprint:
        raise ConfigError(
            f"{directory}: it holds runs of another version of this campaign; give a changed campaign another name, "
            "or another --out"
        )
    now = new_journal(campaign)  # metrics, repeats and budget may have changed
    added = [metric for metric in now.metrics if metric not in found.metrics]
    attempts = [_with_values(directory, attempt, added) for attempt in found.attempts] if added else found.attempts
    return msgspec.structs.replace(now, attempts=attempts)


def _metrics(campaign: Campaign) -> list[str]:
    """What is measured in every run; `until` cannot decide by a metric that is not."""
    settings = campaign.settings
    named = settings.metrics or default_metrics(campaign.experiment(0))
    return list(dict.fromkeys([*named, *([settings.until.metric] if settings.until else [])]))


def _with_values(directory: Path, attempt: Attempt, metrics: list[str]) -> Attempt:
    """A counted run with the values of more metrics, from its recording; as it is if that is gone."""
    if attempt.state is not AttemptState.COUNTED:
        return attempt
    run_dir = directory / attempt.run
    try:
        values = metric_values(run_dir, read_summary(run_dir), metrics)
    except ConfigError:
        return attempt
    return msgspec.structs.replace(attempt, values=attempt.values | values)


def run_campaign(campaign: Campaign, directory: Path, carrier: RunCarrier, view: CampaignView) -> CampaignJournal:
    """Run what is left of a campaign, and return its journal, whose `ending` says why it stopped."""
    with _locked(directory):
        journal = open_journal(campaign, directory)
        attempts = [_recovered(campaign, directory, attempt, journal, carrier) for attempt in journal.attempts]
        journal = _write(directory, msgspec.structs.replace(journal, attempts=attempts))
        while True:
            run_s = expected_seconds(campaign, journal.attempts)
            step = next_run(campaign, journal.attempts, run_s)
            if isinstance(step, Ending):
                ended = msgspec.structs.replace(journal, ending=step.reason, complete=step.complete)
                return _write(directory, ended)
            view.on_next(
                step, describe_levels(campaign.factors, campaign.points[step.point]), len(journal.counted),
                step.remaining * run_s,
            )  # fmt: skip
            started = Attempt(step.point, step.repeat, AttemptState.STARTED)
            journal = _write(directory, msgspec.structs.replace(journal, attempts=[*journal.attempts, started]))
            ended_attempt = _carried_out(campaign, directory, journal, carrier)
            journal = _write(
                directory, msgspec.structs.replace(journal, attempts=[*journal.attempts[:-1], ended_attempt])
            )
            view.on_attempt(ended_attempt)
            if ended_attempt.state is AttemptState.INTERRUPTED:
                return _write(directory, msgspec.structs.replace(journal, ending="interrupted", complete=False))


def _carried_out(campaign: Campaign, directory: Path, journal: CampaignJournal, carrier: RunCarrier) -> Attempt:
    started, begun = journal.attempts[-1], time.monotonic()
    try:
        done = carrier.run(campaign.experiment(started.point, started.repeat), directory)
    except CrescendoError as err:
        if len(journal.attempts) == 1 and isinstance(err, ConfigError):
            _write(directory, msgspec.structs.replace(journal, attempts=[]))
            raise  # nothing has run yet: most likely a mistake that every run would repeat
        run = _left_behind(campaign, directory, started, journal)
        invalid = msgspec.structs.replace(started, state=AttemptState.INVALID, reason=str(err))
        return msgspec.structs.replace(invalid, run="" if run is None else run.name, seconds=time.monotonic() - begun)
    if done is None:
        run = _left_behind(campaign, directory, started, journal)
        name = "" if run is None else run.name
        return msgspec.structs.replace(
            started, state=AttemptState.INTERRUPTED, run=name, seconds=time.monotonic() - begun
        )
    return _ended(started, *done, journal.metrics, time.monotonic() - begun)


def _ended(started: Attempt, run_dir: Path, summary: Summary, metrics: list[str], seconds: float) -> Attempt:
    outcome = summary.verdict.outcome
    sound = outcome is not Outcome.INVALID
    reasons = [reason for check in summary.verdict.checks for reason in check.reasons] + summary.verdict.reasons
    return msgspec.structs.replace(
        started,
        state=AttemptState.COUNTED if sound else AttemptState.INVALID,
        run=run_dir.name,
        outcome=str(outcome),
        reason="" if sound else "; ".join(reasons),
        seconds=seconds,
        values=metric_values(run_dir, summary, metrics) if sound else {},
        stand_ins=stand_ins_of(read_manifest(run_dir).system),
    )


def _recovered(
    campaign: Campaign, directory: Path, attempt: Attempt, journal: CampaignJournal, carrier: RunCarrier
) -> Attempt:
    """A run that was started and not ended: counted if it was sealed, otherwise interrupted."""
    if attempt.state is not AttemptState.STARTED:
        return attempt
    run_dir = _left_behind(campaign, directory, attempt, journal)
    if run_dir is None:
        return msgspec.structs.replace(attempt, state=AttemptState.INTERRUPTED)
    if _is_sealed(run_dir):
        try:
            return _ended(attempt, run_dir, carrier.judge(run_dir), journal.metrics, 0.0)
        except LostError as err:
            return msgspec.structs.replace(attempt, state=AttemptState.INVALID, run=run_dir.name, reason=str(err))
    return msgspec.structs.replace(attempt, state=AttemptState.INTERRUPTED, run=run_dir.name)


def _left_behind(campaign: Campaign, directory: Path, attempt: Attempt, journal: CampaignJournal) -> Path | None:
    """The directory of a run of this point that no attempt names."""
    known = {each.run for each in journal.attempts}
    prefix = f"{campaign.run_name(attempt.point)}-"
    found = [path for path in directory.iterdir() if path.name.startswith(prefix) and path.name not in known]
    return max(found, key=lambda path: path.name, default=None)


def _is_sealed(run_dir: Path) -> bool:
    if not (run_dir / MANIFEST).exists():
        return False
    try:
        return read_manifest(run_dir).state is State.SEALED
    except ConfigError:
        return False


def _write(directory: Path, journal: CampaignJournal) -> CampaignJournal:
    write_journal(directory, journal)
    return journal


@contextmanager
def _locked(directory: Path) -> Iterator[None]:
    """Only one process continues a campaign. The kernel releases the lock of a process that was killed."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        lock = os.open(directory / LOCK_FILE, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
    except OSError as err:
        raise ConfigError(f"{directory}: cannot be used for a campaign: {err.strerror}") from err
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        raise ConfigError(f"{directory}: another process is running this campaign; wait for it, or stop it") from None
    try:
        yield
    finally:
        os.close(lock)
