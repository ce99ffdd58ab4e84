"""How does a job of the queue become a campaign?

In the process of the job, with the session of the command line: its runs, its journal and its page are the same, and a
campaign that was stopped or killed continues in another job, or on the command line. Every run is shown on the live
page of the job, one after the other.
"""

import time
import traceback
from pathlib import Path

import msgspec

from crescendo.campaigns import campaign_session
from crescendo.campaigns.campaign_loop import CampaignView
from crescendo.campaigns.next_run import NextRun
from crescendo.model.errors import CrescendoError
from crescendo.record.campaign_journal import Attempt
from crescendo.run.analysis import Analyst
from crescendo.web.jobs import EXPERIMENT, LIVE, OUTPUT, JobFiles, JobResult, JobState
from crescendo.web.live_feed import LiveFeed
from crescendo.web.planned_campaign import campaign_of
from crescendo.web.run_steps import HERE_STEPS, RunSteps


class _ShownRuns(CampaignView):
    """Tells the live page which run begins."""

    def __init__(self, feed: LiveFeed) -> None:
        self._feed = feed

    def on_next(self, planned: NextRun, levels: str, done: int, left_s: float | None) -> None:
        self._feed.next_run(done + 1, done + planned.remaining, levels, left_s)

    def on_attempt(self, attempt: Attempt) -> None:
        why = f": {attempt.reason}" if attempt.reason else ""
        self._feed.progress(f"{attempt.run or 'the run'} is {attempt.outcome or attempt.state}{why}")


def carry_out_campaign(files: JobFiles, runs: Path, experiments: Path, *, any_file: bool) -> JobResult:
    """Run what is left of the campaign of this job, and say how it ended."""
    job = files.job
    feed = LiveFeed(files.directory / LIVE, RunSteps(HERE_STEPS, files.directory / OUTPUT))
    state, outcome, problem = JobState.DONE, "", ""
    try:
        text = (files.directory / EXPERIMENT).read_text(encoding="utf-8")
        campaign = campaign_of(text, job.shipped, experiments, any_file=any_file)
        with Analyst() as analyst:
            finished = campaign_session.run(
                campaign, out=runs, analyst=analyst, view=_ShownRuns(feed), observer=feed, handle_signals=True,
                command=["crescendo", "campaign", f"{campaign.name}.yml"],
            )  # fmt: skip
        outcome = "complete" if finished.journal.complete else "incomplete"
        if finished.journal.ending == "interrupted":
            state, problem = JobState.CANCELLED, "it was stopped; its runs are kept, and it can be continued"
        elif not finished.journal.complete:
            problem = finished.journal.ending
    except KeyboardInterrupt:
        state, problem = JobState.CANCELLED, "it was stopped; its runs are kept, and it can be continued"
    except CrescendoError as err:
        state, problem = JobState.FAILED, str(err)
    except Exception as err:  # the person who asked must learn of it, whatever it is
        traceback.print_exc()
        state, problem = JobState.FAILED, f"{type(err).__name__}: {err}"
    if problem:
        print(problem, flush=True)
    feed.finish(failed=state is not JobState.DONE)
    ended = JobResult(state, "", outcome, problem, time.time_ns())
    files.finish(ended)
    feed.publish("result", **msgspec.to_builtins(ended))
    feed.close()
    return ended
