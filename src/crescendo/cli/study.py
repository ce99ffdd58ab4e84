"""The verb `study`: the experiments of a publication as one campaign each, its figures beside ours."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from crescendo.cli.options import Json, NoFsync, Out

if TYPE_CHECKING:
    from crescendo.studies.published_study import StudyPart
    from crescendo.studies.study_session import FinishedStudy


def study(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="maestro, mlmq-asl, federation, stomp-activemq or amqperf.")
    ],
    repeat: Annotated[
        int | None,
        typer.Option(
            "--repeat", min=1, help="Run each experiment this often. Default: 3, and a campaign as its file says."
        ),
    ] = None,
    part: Annotated[
        list[str] | None, typer.Option("--part", metavar="PART", help="Only this experiment; may be repeated.")
    ] = None,
    experiments: Annotated[
        Path, typer.Option("--experiments", metavar="DIR", help="Where the experiment files are.")
    ] = Path("experiments"),
    out: Out = Path("runs"),
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only print the experiments and their length.")] = False,
    no_fsync: NoFsync = False,
    as_json: Json = False,
) -> int:
    """Run the short versions of a publication's experiments, and put its figures beside ours.

    All runs are in OUT/<name>-study/. The same command continues a study that was stopped. The exit code is 0 when
    every experiment was measured, and 3 when one was not.
    """
    if dry_run:
        return _print_plan(name, experiments, repeat)
    from crescendo.cli.campaign import printed_view
    from crescendo.cli.run_view import TerminalObserver
    from crescendo.run.analysis import Analyst
    from crescendo.studies.published_study import read_study
    from crescendo.studies.study_session import run_study

    read_study(name)  # before Spark is started
    with Analyst(None) as analyst, TerminalObserver() as observer:
        finished = run_study(
            name, experiments=experiments, out=out, repeat=repeat, analyst=analyst, parts=tuple(part or ()),
            observer=observer, view=printed_view(), on_part=_announce, handle_signals=True, durable=not no_fsync,
        )  # fmt: skip
    if as_json:
        print(msgspec.json.encode(finished.document).decode(), flush=True)
    else:
        _print(finished)
    return 0 if finished.complete else 3


def _announce(part: "StudyPart", number: int, count: int) -> None:
    print(f"experiment {number} of {count}: {part.question}", file=sys.stderr, flush=True)


def _print_plan(name: str, experiments: Path, repeat: int | None) -> int:
    from crescendo.campaigns.campaign_loop import expected_seconds
    from crescendo.campaigns.next_run import planned_runs
    from crescendo.cli.campaign import format_time
    from crescendo.model.errors import ConfigError
    from crescendo.studies.published_study import read_study
    from crescendo.studies.study_session import part_campaign

    study, total = read_study(name), 0.0
    for part in study.parts:
        try:
            campaign = part_campaign(part, experiments, repeat)
        except ConfigError as err:
            print(f"{part.file}  cannot run: {err}")
            continue
        runs = len(planned_runs(campaign, []))
        seconds = runs * expected_seconds(campaign)
        total += seconds
        print(f"{part.file}  {runs} runs, about {format_time(seconds)}  {part.question}")
    print(f"STUDY {name} · {study.title} · about {format_time(total)}")
    return 0


def _print(finished: "FinishedStudy") -> None:
    from crescendo.model.campaign import format_metric

    for part in finished.document.parts:
        print(f"{part.file}  {part.question}")
        if part.reason:
            print(f"  not complete: {part.reason}")
        for point in part.points:
            if point.ours is None:
                continue
            ours = format_metric(point.unit_metric, point.ours)
            if point.published is None:
                print(f"  {point.label}: {ours}")
            else:
                published = format_metric(point.unit_metric, point.published)
                print(f"  {point.label}: published {published}, ours {ours}, × {point.ours / point.published:.3g}")
    state = "complete" if finished.complete else "incomplete"
    print(f"STUDY {state} · {finished.document.title}", flush=True)
    print(f"report  {finished.report}", flush=True)
