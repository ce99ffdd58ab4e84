"""The verbs `baseline set`, `baseline list` and `baseline dismiss`: what later runs are measured by."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

BASELINE_HELP = "Baselines of `crescendo gate`: set, list, dismiss an alarm."
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
    return 0


def dismiss(
    run: Annotated[str, typer.Argument(metavar="RUN", help="The first bad run that a gate named.")],
    metric: Annotated[str, typer.Argument(help="The metric that it named.")],
    note: Annotated[str, typer.Option("--note", help="Why this is not a regression.")],
    baselines: BaselineFile = DEFAULT_FILE,
    lake: LakeDir = DEFAULT_LAKE,
) -> int:
    """Do not report this change again, until the next baseline."""
    import msgspec

    from crescendo.history.baseline_file import Dismissal, read_baselines, write_baselines
    from crescendo.history.run_history import check_metrics, named_runs

    check_metrics([metric])
    (found,) = named_runs([run], lake, [metric])[:1]
    known = read_baselines(baselines)
    added = Dismissal(found.fingerprint, metric, found.name, note)
    write_baselines(baselines, msgspec.structs.replace(known, dismissed=[*known.dismissed, added]))
    print(f"DISMISSED {metric} since {found.name}")
    return 0


BASELINE_VERBS: dict[str, Callable[..., int]] = {"set": set_, "list": list_, "dismiss": dismiss}
