"""Do pages and quick experiments keep a newcomer out of the traps that others fell into?"""

import re
from pathlib import Path

import pytest

from crescendo.model.experiment_file import load_experiment
from documented import EXPERIMENTS, PAGES, ROOT

QUICK = [path for path in EXPERIMENTS if path.parent.name == "quick"]


def test_quick_experiments_share_no_destination_with_each_other_or_with_an_earlier_run() -> None:
    """One name for a queue and a topic made Artemis split a topic's messages among its subscribers."""
    assert len(QUICK) > 6
    named: dict[str, Path] = {}
    for path in QUICK:
        for address in {group.address for group in load_experiment(path).workload}:
            assert "{run}" in str(address), f"{path.name}: {address}"
            node = str(address).partition("://")[2].partition("?")[0]
            assert named.setdefault(node, path) == path, f"{path.name} and {named[node].name} use {node}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_row_of_a_table_belongs_to_it(page: Path) -> None:
    """After an empty line, a row without a header is rendered as text with bars."""
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    lines = ["", *text.splitlines(), ""]
    for before, line, after in zip(lines, lines[1:], lines[2:], strict=False):
        if line.startswith("|") and not before.startswith("|"):
            assert re.fullmatch(r"\|(?: *:?-+:? *\|)+", after), line


def test_queries_of_many_runs_allow_for_columns_that_only_some_have() -> None:
    queries = [
        line for page in PAGES for line in page.read_text(encoding="utf-8").splitlines() if "read_parquet(" in line
    ]
    assert queries
    assert all("union_by_name" in query for query in queries if "runs/lake/" in query), queries


def test_the_environment_is_activated_before_the_command_is_used_by_its_name() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    first = re.search(r"^(?:\$ )?crescendo ", readme, re.MULTILINE)
    assert first is not None
    assert 0 <= readme.find(". .venv/bin/activate") < first.start()


def test_inspectors_of_short_documented_runs_look_every_second() -> None:
    """The default of 5 s leaves three points in a run of ten seconds."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert re.findall(r"kind: artemis, every: 1s", readme)


def test_the_rate_of_a_topic_is_explained() -> None:
    page = (ROOT / "docs/experiment.md").read_text(encoding="utf-8")
    (row,) = re.findall(r"^\| `rate` \| messages per second that arrived.*$", page, re.MULTILINE)
    assert "divided by their number" in row
