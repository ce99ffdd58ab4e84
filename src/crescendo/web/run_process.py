"""How does one job of the queue become a run?

`python -m crescendo.web.run_process DIRECTORY` claims the job in that directory and carries it out with the same
session as the command line. It has a session of its own and outlives a killed server; SIGTERM stops it as Ctrl-C does.
Changes of the rate arrive as files and travel over the control protocol, as those of `crescendo control` do.
"""

import contextlib
import signal
import sys
import threading
import time
import traceback
from pathlib import Path

import msgspec

from crescendo.cluster.cluster_file import read_plan
from crescendo.cluster.cluster_lifecycle import bring_up
from crescendo.control.embedded_broker import EmbeddedBroker
from crescendo.control.notes import Command
from crescendo.control.request_payloads import SetRequest
from crescendo.control.trust import Lab, new_lab
from crescendo.model.errors import CrescendoError, PeerError
from crescendo.processes.die_with_parent import die_with_parent
from crescendo.record.documents import read_or_none, write_document
from crescendo.run import session
from crescendo.run.control_access import ControlAccess
from crescendo.run.interruption import Interruption
from crescendo.run.lab_client import LabClient
from crescendo.run.lab_view import LabView
from crescendo.web.experiment_store import read_text
from crescendo.web.jobs import ANY_FILE, CLUSTER, EXPERIMENT, LIVE, OUTPUT, JobFiles, JobResult, JobState
from crescendo.web.known_clusters import access_of
from crescendo.web.live_feed import LiveFeed
from crescendo.web.rate_requests import ANSWERS, REQUESTS, RateAnswer, RateRequest
from crescendo.web.run_steps import START, RunSteps, steps_of
from crescendo.web.verdict_webhook import Webhook
from crescendo.web.web_directory import WEB

_POLL_S = 0.2


class RateChanger(threading.Thread):
    """Passes changes of the rate on to the conductor of this run."""

    def __init__(self, directory: Path, url: str, lab: Lab) -> None:
        super().__init__(name="rate changes", daemon=True)
        self._directory, self._url, self._lab = directory, url, lab
        self._ended = threading.Event()

    def run(self) -> None:
        while not self._ended.wait(_POLL_S):
            for path in sorted((self._directory / REQUESTS).glob("*.json")):
                answer = self._directory / ANSWERS / path.name
                asked = read_or_none(path, RateRequest)
                if asked is not None and not answer.exists():
                    write_document(answer, RateAnswer(self._change(asked.rate)), mode=0o600)

    def end(self) -> None:
        self._ended.set()
        self.join()

    def _change(self, rate: float) -> str:
        """Why it was not changed; empty if it was."""
        try:
            with LabClient(self._url, self._lab, f"web-{time.time_ns() & 0xFFFFFF:06x}", listen=True) as client:
                view = LabView(client)
                view.discover()
                conductor = view.find("conductor")
                scope = client.lab.scope_of(conductor.scope)
                client.ask(scope, conductor.identity, Command.SET, SetRequest(options={"rate": rate}))
        except CrescendoError as err:
            return str(err)
        return ""


def carry_out(
    files: JobFiles, runs: Path, experiments: Path, *, any_file: bool, cluster: Path | None = None
) -> JobResult:
    """Run the experiment of this job, and say how it ended."""
    steps = RunSteps(steps_of(cluster), files.directory / OUTPUT)
    feed = LiveFeed(files.directory / LIVE, steps)
    job = files.job
    for folder in (REQUESTS, ANSWERS):
        (files.directory / folder).mkdir(mode=0o700, exist_ok=True)
    state, outcome, problem = JobState.DONE, "", ""
    try:
        with contextlib.ExitStack() as stack:
            text = (files.directory / EXPERIMENT).read_text(encoding="utf-8")
            experiment = read_text(text, experiments, f"{job.experiment}.yml", any_file=any_file)
            command = ["crescendo", "run", f"{job.experiment}.yml"]
            if cluster is None:
                lab = new_lab()
                url = stack.enter_context(EmbeddedBroker(on_fork=die_with_parent())).url
            else:
                url, lab = _brought_up(cluster, feed)
                command.append("--standing")
            feed.begin(START)
            interruption = stack.enter_context(Interruption())
            changer = RateChanger(files.directory, url, lab)
            changer.start()
            stack.callback(changer.end)
            control = ControlAccess(url, lab.token, standing=cluster is not None)
            result = session.run(
                experiment, out=runs, control=control, observer=feed, interruption=interruption, command=command
            )
            outcome = result.verdict.outcome.value if result.verdict is not None else result.state.value
    except KeyboardInterrupt:
        state, problem = JobState.CANCELLED, "it was stopped before there was a verdict"
    except CrescendoError as err:
        state, problem = JobState.FAILED, str(err)
    except Exception as err:  # the person who asked must learn of it, whatever it is
        traceback.print_exc()
        state, problem = JobState.FAILED, f"{type(err).__name__}: {err}"
    if problem:
        print(problem, flush=True)
    feed.finish(failed=state is not JobState.DONE)
    kept = feed.run_dir is not None and feed.run_dir.exists()
    ended = JobResult(state, feed.run_dir.name if feed.run_dir and kept else "", outcome, problem, time.time_ns())
    files.finish(ended)
    feed.publish("result", **msgspec.to_builtins(ended))
    feed.close()
    return ended


def _brought_up(path: Path, feed: LiveFeed) -> tuple[str, Lab]:
    """The control broker and the lab of a cluster whose peers are ready."""
    plan = read_plan(path)
    bring_up(plan, access_of(plan), feed.cluster_progress)
    access = access_of(plan)
    return access.url, access.lab


def notify(files: JobFiles, ended: JobResult, webhook: Webhook) -> None:
    """Post how the run ended to the webhook. Last of all: nobody waits for it."""
    job = files.job
    document = {
        "job": job.id,
        "experiment": job.experiment,
        "by": job.by,
        "run": ended.run,
        "state": ended.state.value,
        "outcome": ended.outcome,
        "problem": ended.problem,
        "ended_ns": ended.ended_ns,
        "text": f"{job.experiment}: {ended.outcome or ended.state.value}" + (f" ({ended.run})" if ended.run else ""),
    }
    try:
        webhook.notify(document)
    except PeerError as err:
        print(err, file=sys.stderr)


def main(arguments: list[str]) -> int:
    any_file = ANY_FILE in arguments
    cluster = next((Path(text.removeprefix(CLUSTER)) for text in arguments if text.startswith(CLUSTER)), None)
    directory, runs, experiments = (Path(text) for text in arguments if not text.startswith("--"))
    files = JobFiles(directory)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # until a run can be interrupted gracefully
    if not files.claim():
        print("another process carries out this job", file=sys.stderr)
        return 0
    if files.job.campaign:
        from crescendo.web.campaign_process import (
            carry_out_campaign,
        )  # NumPy and scipy, which a single run does not need

        ended = carry_out_campaign(files, runs, experiments, any_file=any_file)
    else:
        ended = carry_out(files, runs, experiments, any_file=any_file, cluster=cluster)
    notify(files, ended, Webhook(runs / WEB))
    return 0 if ended.state is JobState.DONE else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
