"""One search per level of a factor: capacity, demand, and no level searched twice."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from crescendo.campaigns.capacity_search import levels_of, run_capacity
from crescendo.model.errors import ConfigError
from crescendo.model.experiment import Experiment
from crescendo.model.experiment_file import experiment_from, to_document
from crescendo.model.search import SearchAnswer
from crescendo.record.capacity_result import read_capacity
from crescendo.record.search_result import SearchResult, write_search_result

DOCUMENT = to_document(experiment_from({"name": "cap", "workload": {"rate": 10}, "search": {"from": 10, "to": 1000}}))
SUSTAINED = {1: 100.0, 2: 180.0, 4: 180.0, 8: 400.0}


class FakeSearch:
    """Answers by the number of senders; the third search is interrupted the first time."""

    def __init__(self) -> None:
        self.asked: list[int] = []
        self.interrupts = True

    def __call__(self, experiment: Experiment, directory: Path) -> tuple[Path, SearchResult]:
        senders = experiment.workload[0].senders
        self.asked.append(senders)
        place = directory / f"{experiment.name}-search-{len(self.asked)}"
        place.mkdir()
        rate = SUSTAINED[senders]
        answer = SearchAnswer(rate, rate * 1.1, True, "bracketed")
        if senders == 4 and self.interrupts:
            self.interrupts = False
            answer = SearchAnswer(None, None, False, "interrupted")
        result = SearchResult(experiment.name, {"lost": "== 0"}, "2", answer, [])
        write_search_result(place, result)
        return place, result


def test_capacity_and_demand_follow_from_one_search_per_level(tmp_path: Path) -> None:
    search = FakeSearch()
    _, stopped = run_capacity(DOCUMENT, "workload.senders=1,2,4,8", tmp_path, search)
    assert [level.complete for level in stopped.levels] == [True, True, False]
    page, result = run_capacity(DOCUMENT, "workload.senders=1,2,4,8", tmp_path, search)
    assert search.asked == [1, 2, 4, 4, 8]
    assert [(level.number, level.rate) for level in result.levels] == list(SUSTAINED.items())
    assert read_capacity(page.parent) == result
    drawn: dict[str, Any] = json.loads(re.findall(r'id="figures">(.*?)</script>', page.read_text(encoding="utf-8"))[0])
    assert drawn["capacity"]["data"][0]["y"] == list(SUSTAINED.values())
    demand = drawn["demand"]["data"][0]
    # Four senders sustain no more than two, so no rate demands them.
    assert (demand["x"], demand["y"]) == ([0, 100, 180, 400], [1, 2, 8, 8])


def test_a_sweep_of_one_level_is_refused() -> None:
    with pytest.raises(ConfigError, match="two or more values"):
        levels_of("workload.senders=1")
