"""Can a reader type what the documentation says, and write what it shows?"""

from pathlib import Path
from typing import Any

import pytest
import typer
from typer.main import get_command

from crescendo.cli.main import app
from crescendo.model.campaign_file import load_campaign
from crescendo.model.experiment_file import load_experiment
from documented import CAMPAIGNS, EXPERIMENTS, ROOT, Documented, ci_commands, commands, yaml_experiments

COMMANDS = [item for item in commands() + ci_commands() if not item.is_python]
PYTHON, WRITTEN = [item for item in commands() if item.is_python], yaml_experiments()
RUNS = [item for item in COMMANDS if item.words[0] == "run" and ROOT / item.words[1] in EXPERIMENTS]


def _ids(found: list[Documented]) -> list[str]:
    return [f"{item.where}: {item.text.strip().splitlines()[0][:60]}" for item in found]


def test_the_documentation_is_found() -> None:
    assert len(COMMANDS) > 50
    assert len(WRITTEN) > 6
    assert len(PYTHON) > 3
    assert {Path(item.where).name for item in ci_commands()} == {"performance-gate.yml", "recipes.md"}
    assert {item.words[0] for item in ci_commands()} == {"run", "gate", "history", "compare"}


@pytest.mark.parametrize("command", COMMANDS, ids=_ids(COMMANDS))
def test_a_documented_command_has_a_verb_and_options_that_exist(command: Documented) -> None:
    found: Any = get_command(app)
    words = command.words
    while hasattr(found, "commands"):
        context = typer.Context(found, info_name="crescendo")
        found, words = found.get_command(context, words[0]), words[1:]
        assert found is not None, command.text
    with found.make_context("crescendo", words):  # parses, and calls nothing
        pass


@pytest.mark.parametrize("command", RUNS, ids=_ids(RUNS))
def test_the_overrides_of_a_documented_run_fit_its_file(command: Documented) -> None:
    words = command.words
    given = [words[index + 1] for index, word in enumerate(words) if word == "--set"]
    overrides = tuple(override for override in given if not override.endswith("…"))
    load_experiment(ROOT / words[1], overrides)


@pytest.mark.parametrize("written", WRITTEN, ids=_ids(WRITTEN))
def test_a_documented_experiment_is_valid(written: Documented, tmp_path: Path) -> None:
    (tmp_path / "documented.yml").write_text(written.text, encoding="utf-8")
    load_experiment(tmp_path / "documented.yml")


@pytest.mark.parametrize("path", EXPERIMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_experiment_file_is_valid(path: Path) -> None:
    load_experiment(path)


@pytest.mark.parametrize("path", CAMPAIGNS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_campaign_file_is_valid(path: Path) -> None:
    assert load_campaign(path).points
