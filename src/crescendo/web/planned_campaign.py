"""Which campaign does a request of the browser mean?

A stored experiment with factors, or a campaign that comes with Crescendo. The text that a job keeps is a campaign file
with its experiment inside; its files are looked for, and refused, as those of a single experiment. Starts nothing.
"""

from collections.abc import Mapping
from math import ceil
from pathlib import Path
from typing import Any

import yaml

from crescendo.model.campaign import Campaign
from crescendo.model.campaign_file import EXPERIMENT, FACTORS, campaign_from, load_campaign
from crescendo.model.errors import ConfigError
from crescendo.model.experiment_file import parse_mapping
from crescendo.web.experiment_store import (
    MAX_TEXT_CHARS,
    FilePlaces,
    ShippedExperiment,
    place_files,
    refuse_aliases,
    shipped_campaigns,
)
from crescendo.web.web_directory import NotFoundError

MAX_POINTS = 1_000
"""Combinations of levels: a request that asks for more would keep the server busy with checking them."""

_KEYS = "experiment, factors and design"


def campaign_text(name: str, experiment: str, factors: str, design: str, repeat: int, settings: str) -> str:
    """The campaign file of a form: the experiment by its text, factors and further settings as lines of YAML."""
    document: dict[str, Any] = {
        "name": name.strip(),
        EXPERIMENT: parse_mapping(experiment, "experiment", "name, workload and phases"),
        "design": design,
        "repeat": repeat,
    }
    if factors.strip():
        refuse_aliases(factors, "factors")
        document[FACTORS] = parse_mapping(factors, "factors", "workload.rate")
    if settings.strip():
        refuse_aliases(settings, "settings")
        document |= parse_mapping(settings, "settings", "budget, until and metrics")
    document[EXPERIMENT].pop("name", None)  # runs are named after the campaign
    return yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=110)


def read_campaign(text: str, directory: Path, *, any_file: bool = False) -> Campaign:
    """The campaign of such a text. ConfigError as on the command line, or if it names a file elsewhere."""
    if len(text) > MAX_TEXT_CHARS:
        raise ConfigError(f"campaign: {len(text):,} characters are too many; the limit is {MAX_TEXT_CHARS:,}")
    refuse_aliases(text, "campaign")
    document = parse_mapping(text, "campaign", _KEYS)
    places = FilePlaces(directory, "campaign", any_file)
    if isinstance(document.get(EXPERIMENT), dict):
        place_files(document[EXPERIMENT], places)
    if isinstance(document.get(FACTORS), dict):
        _place_levels(document[FACTORS], places)
    return campaign_from(document, most_points=MAX_POINTS)


def shipped_campaign(name: str) -> ShippedExperiment:
    """The campaign that comes with Crescendo and has this id."""
    found = next((one for one in shipped_campaigns() if one.id == name), None)
    if found is None:
        raise NotFoundError(f"no campaign {name[:80]!r} comes with Crescendo; /campaigns lists them")
    return found


def campaign_of(text: str, shipped: str, directory: Path, *, any_file: bool = False) -> Campaign:
    """The campaign of a job."""
    if shipped:
        return load_campaign(shipped_campaign(shipped).path)
    return read_campaign(text, directory, any_file=any_file)


def plan_of(campaign: Campaign, out: Path) -> dict[str, Any]:
    """What is left to run, and how long that takes."""
    from crescendo.campaigns.campaign_loop import expected_seconds, open_journal  # NumPy and scipy
    from crescendo.campaigns.campaign_session import campaign_directory
    from crescendo.campaigns.next_run import planned_runs

    directory = campaign_directory(campaign, out)
    journal = open_journal(campaign, directory)
    runs = len(planned_runs(campaign, journal.attempts))
    seconds = expected_seconds(campaign, journal.attempts) * runs
    done = f" of {runs + len(journal.counted)} are left" if journal.counted else ""
    points = len(campaign.points)
    about = f"{runs} run{'' if runs == 1 else 's'}{done}, {points} combination{'' if points == 1 else 's'} of levels"
    return {
        "name": campaign.name,
        "directory": directory.name,
        "points": points,
        "runs": runs,
        "seconds": seconds,
        "aliases": journal.aliases,
        "about": f"{about}, about {max(1, ceil(seconds / 60))} min.",
    }


def _place_levels(factors: dict[str, Any], places: FilePlaces) -> None:
    """Replace every path among the levels, in each of the ways in which a factor may be written."""
    for name, written in factors.items():
        if isinstance(written, list):
            factors[name] = [_placed(name, level, places) for level in written]
        elif isinstance(written, dict):
            levels = written.get("levels")
            if isinstance(levels, list):
                key = str(written.get("key", name))
                written["levels"] = [_placed(key, level, places) for level in levels]
            elif isinstance(levels, Mapping):
                for level, sets in levels.items():
                    if isinstance(sets, Mapping):
                        written["levels"][level] = {key: _placed(key, value, places) for key, value in sets.items()}


def _placed(key: object, value: object, places: FilePlaces) -> object:
    """A value of this key of the experiment, such as `workload.size.file`."""
    last = str(key).rpartition(".")[2]
    box = {last: value}
    place_files(box, places)
    return box[last]
