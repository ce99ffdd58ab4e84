"""The verbs `baseline set`, `list`, `confirm`, `dismiss`: what later runs are measured by, and what changed."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

BASELINE_HELP = "Baselines of `crescendo gate`: set, list, confirm or dismiss an alarm."
BaselineFile = Annotated[Path, typer.Option("--baselines", metavar="FILE", help="The file with the baselines.")]
LakeDir = Annotated[Path, typer.Option("--lake", metavar="DIR", help="Where to look up experiments by name.")]
DEFAULT_FILE = Path("runs/baselines.json")
DEFAULT_LAKE = Path("runs/lake")


def set_(
    runs: Annotated[list[str], typer.Argument(metavar="RUN…", help="Three or more runs, or patterns, as in compare.")],
    metric: Annotated[
        list[str] | None, typer.Option("--metric", metavar="METRIC", help="Keep this metric only; may be repeated.")
    ] = None,
    note: Annotated[str, typer.Option("--note", help="Why these runs are good.")] = "",
    baselines: BaselineFile = DEFAULT_FILE,
    lake: LakeDir = DEFAULT_LAKE,
) -> int:
    """Make runs the baseline of their experiment on their class of machine."""
    from crescendo.history.baseline_file import read_baselines, write_baselines
    from crescendo.history.regression_gate import baseline_of
    from crescendo.history.run_history import check_metrics, named_runs

    check_metrics(metric or ())
    baseline = baseline_of(named_runs(runs, lake, metric or ()), note)
    write_baselines(baselines, read_baselines(baselines).with_baseline(baseline))
    print(f"BASELINE {baseline.fingerprint} · {baseline.experiment} · {len(baseline.runs)} runs · {baselines}")
    return 0


def list_(baselines: BaselineFile = DEFAULT_FILE) -> int:
    """List the baselines of a file, and the alarms that were dismissed."""
    from crescendo.history.baseline_file import read_baselines

    known = read_baselines(baselines)
    for baseline in known.baselines.values():
        note = f" · {baseline.note}" if baseline.note else ""
        print(f"{baseline.fingerprint}  {baseline.experiment} · {len(baseline.runs)} runs{note}")
    for each in known.dismissed:
        print(f"{each.fingerprint}  dismissed: {each.metric} since {each.run} · {each.note}")
    for each in known.confirmed:
        print(f"{each.fingerprint}  confirmed: {each.metric} since {each.run} · {each.note}")
    return 0


BadRun = Annotated[str, typer.Argument(metavar="RUN", help="The first bad run that a gate named.")]
BadMetric = Annotated[str, typer.Argument(metavar="METRIC", help="The metric that it named.")]


def confirm(
    run: BadRun,
    metric: BadMetric,
    note: Annotated[str, typer.Option("--note", help="What caused it, or who works on it.")],
    baselines: BaselineFile = DEFAULT_FILE,
    lake: LakeDir = DEFAULT_LAKE,
) -> int:
    """This change is a regression: gates keep failing and quote the note, until it is fixed or accepted."""
    return _review("confirmed", run, metric, note, baselines, lake)


def dismiss(
    run: BadRun,
    metric: BadMetric,
    note: Annotated[str, typer.Option("--note", help="Why this is not a regression.")],
    baselines: BaselineFile = DEFAULT_FILE,
    lake: LakeDir = DEFAULT_LAKE,
) -> int:
    """Do not report this change again, until the next baseline."""
    return _review("dismissed", run, metric, note, baselines, lake)


def _review(state: str, run: str, metric: str, note: str, baselines: Path, lake: Path) -> int:
    from crescendo.history.baseline_file import ReviewedChange, read_baselines, write_baselines
    from crescendo.history.run_history import check_metrics, named_runs

    check_metrics([metric])
    (found,) = named_runs([run], lake, [metric])[:1]
    change = ReviewedChange(found.fingerprint, metric, found.name, note)
    write_baselines(baselines, read_baselines(baselines).with_review(change, state))
    print(f"{state.upper()} {metric} since {found.name}")
    return 0


BASELINE_VERBS: dict[str, Callable[..., int]] = {"set": set_, "list": list_, "confirm": confirm, "dismiss": dismiss}
