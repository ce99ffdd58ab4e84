"""The verb `campaign`: run a designed experiment unattended, and say what matters."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from crescendo.cli.options import Control, ControlFile, Json, NoFsync, Out

if TYPE_CHECKING:
    from crescendo.campaigns.campaign_loop import CampaignView
    from crescendo.campaigns.campaign_session import FinishedCampaign
    from crescendo.model.campaign import Campaign
    from crescendo.run.control_access import ControlAccess

DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Only print the runs in their order, and how long they will take.")
]


def campaign(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A campaign file, such as experiments/mlmq/2k4.yml.")],
    out: Out = Path("runs"),
    dry_run: DryRun = False,
    control: Control = None,
    control_file: ControlFile = None,
    master: Annotated[
        str | None, typer.Option("--master", help="A Spark master for the analysis. Default: this machine.")
    ] = None,
    no_fsync: NoFsync = False,
    as_json: Json = False,
) -> int:
    """Run every combination that a design asks for, and rank the factors.

    All runs are in OUT/<name>-campaign/. The same command continues a campaign that was stopped or killed, at its next
    unfinished run. The exit code is 0 when every run was counted, 1 when one of them failed its checks, and 3 when the
    campaign is incomplete.
    """
    from crescendo.cli.secret_options import secret_url
    from crescendo.model.campaign_file import load_campaign
    from crescendo.run.control_access import ControlAccess

    loaded = load_campaign(file)
    command = ["crescendo", "campaign", str(file)]
    access = ControlAccess(secret_url("--control", control, control_file), None, False)
    return run_campaign_and_show(
        loaded, command, out, dry_run=dry_run, control=access, master=master, durable=not no_fsync, as_json=as_json
    )


def run_campaign_and_show(
    loaded: "Campaign",
    command: list[str],
    out: Path,
    *,
    dry_run: bool = False,
    control: "ControlAccess | None" = None,
    master: str | None = None,
    durable: bool = True,
    metrics: int | None = None,
    as_json: bool = False,
) -> int:
    """Run, or with dry_run only list, what is left of a campaign."""
    if dry_run:
        return _print_plan(loaded, out, as_json=as_json)
    from crescendo.campaigns import campaign_session
    from crescendo.cli.run_view import TerminalObserver, ask_before_purging, with_metrics
    from crescendo.run.analysis import Analyst

    ask_before_purging(loaded.experiment(0))
    with (
        Analyst(master) as analyst,
        TerminalObserver() as shown,
        with_metrics(shown, loaded.name, metrics) as observer,
    ):
        finished = campaign_session.run(
            loaded,
            out=out,
            analyst=analyst,
            view=printed_view(),
            observer=observer,
            control=control,
            durable=durable,
            handle_signals=True,
            command=command,
        )
    if as_json:
        print(msgspec.json.encode({"journal": finished.journal, "effects": finished.effects}).decode(), flush=True)
    else:
        _print_answer(finished)
    return exit_code(finished)


def exit_code(finished: "FinishedCampaign") -> int:
    if not finished.journal.complete:
        return 3
    return 1 if any(attempt.outcome == "fail" for attempt in finished.journal.counted) else 0


def _print_plan(loaded: "Campaign", out: Path, *, as_json: bool) -> int:
    from crescendo.campaigns.campaign_loop import expected_seconds, open_journal
    from crescendo.campaigns.campaign_session import campaign_directory
    from crescendo.campaigns.next_run import planned_runs
    from crescendo.model.campaign import describe_levels

    journal = open_journal(loaded, campaign_directory(loaded, out))
    left = planned_runs(loaded, journal.attempts)
    seconds = expected_seconds(loaded, journal.attempts) * len(left)
    if as_json:
        runs = [{"point": point + 1, "repeat": repeat + 1} for point, repeat in left]
        print(msgspec.json.encode({"runs": runs, "seconds": seconds, "aliases": journal.aliases}).decode())
        return 0
    for number, (point, repeat) in enumerate(left, 1):
        levels = describe_levels(loaded.factors, loaded.points[point])
        print(f"{number:4}  point {point + 1}, repeat {repeat + 1}  {levels}")
    for line in journal.aliases:
        print(f"alias  {line}")
    more = ", and more repeats while intervals are too wide" if loaded.settings.until is not None else ""
    print(f"CAMPAIGN {loaded.name} · {len(left)} runs{more} · about {format_time(seconds)}")
    return 0


def _print_answer(finished: "FinishedCampaign") -> None:
    from crescendo.model.campaign import format_metric
    from crescendo.report.sections.growth import knee_sentence, law_sentence

    journal = finished.journal
    for one in finished.effects.metrics:
        mean = "not measured" if one.mean is None else format_metric(one.metric, one.mean)
        ends = ""
        if one.low is not None and one.high is not None:
            ends = f" ({format_metric(one.metric, one.low)} to {format_metric(one.metric, one.high)})"
        print(f"{one.metric}: mean {mean}{ends}" + (", on a logarithmic scale" if one.scale == "logarithmic" else ""))
        for effect in one.effects:
            if effect.order == 1 or effect.significant:
                print(f"  {effect.sentence}")
        for note in one.notes:
            print(f"  {note}")
    for curve in finished.effects.scaling:
        print(f"{curve.metric} by {curve.factor}")
        for law in curve.laws:
            print(f"  {law_sentence(curve.metric, law)}")
            for warning in law.warnings:
                print(f"    {warning}")
        if curve.reason:
            print(f"  {curve.reason}")
    for knee in finished.effects.knees:
        print(knee_sentence(knee) + (f" {knee.warning}" if knee.warning else ""))
    left_out = len(journal.attempts) - len(journal.counted)
    more = f" · {left_out} not counted" if left_out else ""
    state = "complete" if journal.complete else "incomplete"
    print(f"CAMPAIGN {state} · {len(journal.counted)} runs{more} · {journal.ending}", flush=True)
    print(f"report  {finished.report}", flush=True)


def format_time(seconds: float) -> str:
    """A time that people plan with."""
    if seconds >= 2 * 3600:
        return f"{seconds / 3600:.1f} h"
    return f"{seconds / 60:.0f} min" if seconds >= 120 else f"{seconds:.0f} s"


def printed_view() -> "CampaignView":
    """Prints which run starts, and how it ended."""
    from crescendo.campaigns.campaign_loop import CampaignView
    from crescendo.campaigns.next_run import NextRun
    from crescendo.record.campaign_journal import Attempt

    class Printed(CampaignView):
        def on_next(self, planned: NextRun, levels: str, done: int, left_s: float | None) -> None:
            total = done + planned.remaining
            left = "" if left_s is None else f" · about {format_time(left_s)} left"
            print(f"run {done + 1} of {total}: {levels or 'repeat'}{left}", file=sys.stderr, flush=True)

        def on_attempt(self, attempt: Attempt) -> None:
            why = f": {attempt.reason}" if attempt.reason else ""
            print(f"  {attempt.outcome or attempt.state}{why}", file=sys.stderr, flush=True)

    return Printed()
