"""Can two sides be compared at all?

Lists what makes the numbers of a side doubtful, according to the validity list of its analysis, and what else could
explain a difference: other settings, another machine, no repeats. Compares no numbers.
"""

from crescendo.model.metrics import GENERATOR_KEPT_UP
from crescendo.pipeline.compare.runs import RunGroup
from crescendo.pipeline.verdict.rules import every_metric
from crescendo.pipeline.verdict.validity import RULES
from crescendo.record.manifest import State
from crescendo.record.stand_in import stand_in_remarks, stand_ins_of

_PRECONDITIONS = {rule.name for rule in RULES if rule.undermines is every_metric}
_MAX_DIFFERENCES = 8


def doubts_of(side: RunGroup) -> list[str]:
    """Reasons to doubt every number of a side."""
    doubts = []
    for repeat in side.repeats:
        failed = [item.detail for item in repeat.summary.validity if item.name in _PRECONDITIONS and not item.holds]
        if repeat.summary.state != State.SEALED and not failed:
            failed = [f"the recording is {repeat.summary.state}"]
        doubts += [f"{repeat.name}: {detail}" for detail in failed]
    return doubts


def slow_generators(side: RunGroup) -> list[str]:
    checks = [(repeat, item) for repeat in side.repeats for item in repeat.summary.validity]
    return [
        f"{repeat.name}: {item.detail}" for repeat, item in checks if item.name == GENERATOR_KEPT_UP and not item.holds
    ]


def comparison_notes(baseline: RunGroup, run: RunGroup) -> list[str]:
    """What else than the systems could explain a difference."""
    notes = []
    if len(baseline.repeats) == len(run.repeats) == 1:
        notes.append("one run per side: the variation from run to run is unknown; repeat both to measure it")
    before, after = _flatten(baseline.experiment), _flatten(run.experiment)
    differing = [key for key in sorted(before.keys() | after.keys()) if before.get(key) != after.get(key)]
    shown = [
        f"{key} {before.get(key, '(none)')} → {after.get(key, '(none)')}"
        for key in differing
        if key not in {"name", "seed"}
    ]
    if shown:
        more = ["…"] if len(shown) > _MAX_DIFFERENCES else []
        notes.append("not the same experiment: " + "; ".join([*shown[:_MAX_DIFFERENCES], *more]))
    hosts = [{str(repeat.manifest.host.get("name", "")) for repeat in side.repeats} for side in (baseline, run)]
    if hosts[0] != hosts[1]:
        notes.append(f"not the same machine: {', '.join(sorted(hosts[0]))} → {', '.join(sorted(hosts[1]))}")
    return notes + stand_in_remarks(
        [stand_ins_of(repeat.manifest.system) for side in (baseline, run) for repeat in side.repeats]
    )


def _flatten(document: object, path: str = "") -> dict[str, object]:
    """Every leaf of an experiment under its path."""
    if isinstance(document, dict):
        items = [(str(key), value) for key, value in document.items()]
    elif isinstance(document, list):
        items = [(str(number), value) for number, value in enumerate(document)]
    else:
        return {path: document}
    branches = [_flatten(item, f"{path}.{key}" if path else key) for key, item in items]
    return {leaf: value for branch in branches for leaf, value in branch.items()}
