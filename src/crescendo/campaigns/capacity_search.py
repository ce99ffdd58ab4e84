"""How much does a system sustain at each level of a factor?

One search per level, each in its own directory, and one result. A level whose search was answered is not searched
again, so the same command continues. How a search is carried out is given by the caller.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from crescendo.model.campaign_file import read_levels
from crescendo.model.errors import ConfigError
from crescendo.model.experiment import Experiment
from crescendo.model.experiment_file import experiment_from
from crescendo.record.capacity_result import CapacityLevel, CapacityResult, write_capacity
from crescendo.record.search_result import SEARCH_FILE, SearchResult, read_search_result
from crescendo.report.capacity_page import write_capacity_page

SearchAt = Callable[[Experiment, Path], tuple[Path, SearchResult]]
"""Search with an experiment in a directory: the directory of its tries, and its result."""


def capacity_directory(name: str, out: Path) -> Path:
    return out / f"{name}-capacity"


def levels_of(sweep: str) -> tuple[str, list[Any]]:
    """The key and the levels of `--sweep key=a,b,c`."""
    key, equals, text = sweep.partition("=")
    levels = read_levels(text)
    if not equals or not key or len(levels) < 2:
        raise ConfigError(f"--sweep {key}: write two or more values, for example --sweep system.settings.brokers=1,2,4")
    return key, levels


def experiments_of(document: dict[str, Any], key: str, levels: list[Any]) -> list[Experiment]:
    """The experiment of each level, checked before anything is started."""
    name = str(document["name"])
    return [
        experiment_from(
            {**document, "name": f"{name}.{number:03d}"}, (), {key: level}, source=f"--sweep {key}={level}",
            default_name=name,
        )
        for number, level in enumerate(levels, 1)
    ]  # fmt: skip


def run_capacity(document: dict[str, Any], sweep: str, out: Path, search_at: SearchAt) -> tuple[Path, CapacityResult]:
    """Search at every level that has no answer yet, and write result and page. Stops at an interrupted search."""
    key, levels = levels_of(sweep)
    experiments = experiments_of(document, key, levels)
    name = str(document["name"])
    directory = capacity_directory(name, out)
    directory.mkdir(parents=True, exist_ok=True)
    limits = {}
    if (search := experiments[0].search) is not None:
        limits = {metric: str(limit) for metric, limit in search.limits.items()}
    result = CapacityResult(name, key, limits, [])
    for level, experiment in zip(levels, experiments, strict=True):
        where, found = _answered(directory, experiment.name) or search_at(experiment, directory)
        result = CapacityResult(name, key, limits, [*result.levels, _level(level, where, found)])
        write_capacity(directory, result)
        if found.answer is None or found.answer.reason == "interrupted":
            break
    return write_capacity_page(directory), result


def _answered(directory: Path, name: str) -> tuple[Path, SearchResult] | None:
    for place in sorted(directory.glob(f"{name}-search-*"), reverse=True):
        if (place / SEARCH_FILE).exists():
            found = read_search_result(place)
            if found.answer is not None and found.answer.complete:
                return place, found
    return None


def _level(level: Any, where: Path, found: SearchResult) -> CapacityLevel:
    answer = found.answer
    number = float(level) if isinstance(level, int | float) and not isinstance(level, bool) else None
    if answer is None:
        return CapacityLevel(str(level), number, None, None, False, "still in progress", where.name)
    return CapacityLevel(str(level), number, answer.rate, answer.above, answer.complete, answer.reason, where.name)
