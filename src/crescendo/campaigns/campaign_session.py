"""How does a campaign become runs, effects and a page?

Runs on real systems with one Spark for all of them, computes the effects after every ending, and writes the page of the
campaign. Prints nothing, and leaves no process behind.
"""

from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

from crescendo.campaigns.campaign_loop import CampaignView, run_campaign
from crescendo.campaigns.ranked_factors import campaign_effects
from crescendo.model.campaign import Campaign
from crescendo.model.experiment import Experiment
from crescendo.record.campaign_effects import CampaignEffects, write_effects
from crescendo.record.campaign_journal import CampaignJournal
from crescendo.record.manifest import State
from crescendo.record.summary import Summary
from crescendo.run import session
from crescendo.run.analysis import Analyst
from crescendo.run.control_access import ControlAccess
from crescendo.run.interruption import Interruption
from crescendo.run.observer import RunObserver


@dataclass(frozen=True)
class FinishedCampaign:
    """A campaign that has ended, or was interrupted: its runs so far, its effects, its page."""

    directory: Path
    journal: CampaignJournal
    effects: CampaignEffects
    report: Path


def campaign_directory(campaign: Campaign, out: Path) -> Path:
    """Where the runs of a campaign are; the same for every start of it, so that it continues."""
    return out / f"{campaign.name}-campaign"


def run(
    campaign: Campaign,
    *,
    out: Path,
    analyst: Analyst,
    view: CampaignView | None = None,
    observer: RunObserver | None = None,
    control: str | ControlAccess | None = None,
    durable: bool = True,
    handle_signals: bool = False,
    command: list[str] | None = None,
) -> FinishedCampaign:
    """Run what is left of a campaign in OUT/<name>-campaign/.

    handle_signals: Ctrl-C and SIGTERM end the campaign after sealing the run in progress; main thread only.
    """
    directory = campaign_directory(campaign, out)
    carrier = _SessionCarrier(analyst, observer or RunObserver(), control, durable, handle_signals, command or [])
    journal = run_campaign(campaign, directory, carrier, view or CampaignView())
    effects = campaign_effects(journal)
    write_effects(directory, effects)
    from crescendo.report.campaign_page import write_campaign_page  # plotly

    return FinishedCampaign(directory, journal, effects, write_campaign_page(directory))


@dataclass(frozen=True)
class _SessionCarrier:
    analyst: Analyst
    observer: RunObserver
    control: str | ControlAccess | None
    durable: bool
    handle_signals: bool
    command: list[str]

    def run(self, experiment: Experiment, out: Path) -> tuple[Path, Summary] | None:
        if self.observer.interrupted():
            return None
        # A handler per run: after its recording is sealed, the next signal ends the analysis at once.
        with Interruption() if self.handle_signals else nullcontext() as interruption:
            try:
                result = session.run(
                    experiment,
                    out=out,
                    control=self.control,
                    observer=self.observer,
                    durable=self.durable,
                    analyst=self.analyst,
                    interruption=interruption,
                    command=self.command,
                )
            except KeyboardInterrupt:
                return None
        if result.state is State.INTERRUPTED or result.summary is None:
            return None
        return result.run_dir, result.summary

    def judge(self, run_dir: Path) -> Summary:
        summary = self.analyst.analyze(run_dir, self.observer.progress)
        from crescendo.report.page import write_report

        write_report(run_dir)
        return summary
