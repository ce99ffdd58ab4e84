"""May two sides be compared at all?

What makes the numbers of a side doubtful, from the validity that its analysis found, and what a reader should know who
takes a difference for that of the systems: other settings, another machine, no repeats. Compares no numbers.
"""

from crescendo.pipeline.compare.runs import RunGroup
from crescendo.record.manifest import State

_GROUNDS = {"load was sent", "recording complete", "every part intact", "every peer finished"}
_GENERATOR = "generator kept up"
_SHOWN = 8


def doubts_of(side: RunGroup) -> list[str]:
    """What makes every number of a run doubtful."""
    said = []
    for one in side.repeats:
        failed = [item.detail for item in one.summary.validity if item.name in _GROUNDS and not item.holds]
        if one.summary.state != State.SEALED and not failed:
            failed = [f"the recording is {one.summary.state}"]
        said += [f"{one.name}: {detail}" for detail in failed]
    return said


def slow_generators(side: RunGroup) -> list[str]:
    checks = [(one, item) for one in side.repeats for item in one.summary.validity]
    return [f"{one.name}: {item.detail}" for one, item in checks if item.name == _GENERATOR and not item.holds]


def notes_on(baseline: RunGroup, run: RunGroup) -> list[str]:
    """What a reader should know who takes the difference for that of the systems."""
    notes = []
    if len(baseline.repeats) == len(run.repeats) == 1:
        notes.append("one run a side: what differs from run to run by itself is not known; repeat both to know it")
    before, after = _flat(baseline.experiment), _flat(run.experiment)
    differing = [key for key in sorted(before.keys() | after.keys()) if before.get(key) != after.get(key)]
    shown = [f"{key} {before.get(key)} → {after.get(key)}" for key in differing if key not in {"name", "seed"}]
    if shown:
        notes.append("not the same experiment: " + "; ".join(shown[:_SHOWN]) + ("; …" if len(shown) > _SHOWN else ""))
    hosts = [{str(one.manifest.host.get("name", "")) for one in side.repeats} for side in (baseline, run)]
    if hosts[0] != hosts[1]:
        notes.append(f"not the same machine: {', '.join(sorted(hosts[0]))} → {', '.join(sorted(hosts[1]))}")
    return notes


def _flat(document: object, path: str = "") -> dict[str, object]:
    """Every leaf of an experiment under its path."""
    if isinstance(document, dict):
        items = [(str(key), value) for key, value in document.items()]
    elif isinstance(document, list):
        items = [(str(number), value) for number, value in enumerate(document)]
    else:
        return {path: document}
    return {leaf: value for key, item in items for leaf, value in _flat(item, f"{path}.{key}" if path else key).items()}
