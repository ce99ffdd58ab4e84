"""How does a YAML file become a campaign?

Reads the file and the experiment that it names or contains, and checks every combination of levels before anything is
started. A mistake is one sentence with the file, the path in the file and what would be right.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from crescendo.model.campaign import Campaign, CampaignSettings
from crescendo.model.designs import MAX_POINTS
from crescendo.model.document_errors import explain
from crescendo.model.errors import ConfigError
from crescendo.model.experiment_file import name_of, read_mapping
from crescendo.model.factors import read_factors
from crescendo.model.suggestions import suggestion
from crescendo.model.units import parse_unit

EXPERIMENT, FACTORS = "experiment", "factors"
_DESIGN, _TOPOLOGY = "design", "topology"
_KNOWN = (EXPERIMENT, FACTORS, *(each.encode_name for each in msgspec.structs.fields(CampaignSettings)))


def load_campaign(path: Path) -> Campaign:
    """Read one campaign file. Raises ConfigError for mistakes."""
    document = read_mapping(path, "experiment, factors and design")
    written, place = document.get(EXPERIMENT), path
    if isinstance(written, str):
        place = path.parent / written
        written = read_mapping(place, "name, workload and phases")
    written = _topologies_beside(place, written)
    if FACTORS in document:
        document[FACTORS] = _topologies_beside(path, document[FACTORS])
    return campaign_from({**document, EXPERIMENT: written}, source=str(path), default_name=name_of(path))


def _topologies_beside(path: Path, written: object) -> Any:
    """The same with topology files that stand beside this file, wherever the campaign is run from."""
    if not isinstance(written, dict):
        return written
    found = {key: _topologies_beside(path, value) for key, value in written.items()}
    if isinstance(named := found.get(_TOPOLOGY), str):
        found[_TOPOLOGY] = str(path.parent / named)
    elif isinstance(named, list):  # the levels of a factor
        found[_TOPOLOGY] = [str(path.parent / each) if isinstance(each, str) else each for each in named]
    return found


def campaign_from(
    document: dict[str, Any], *, source: str = "campaign", default_name: str = "campaign",
    most_points: int = MAX_POINTS,
) -> Campaign:  # fmt: skip
    """Build a campaign from the content of a file, and check the experiment of each of its points."""
    for key in document:
        if key not in _KNOWN:
            raise ConfigError(f"{source}: unknown key {key!r}; {suggestion(str(key), _KNOWN, listed='known keys')}")
    experiment = document.get(EXPERIMENT)
    if not isinstance(experiment, dict):
        raise ConfigError(f"{source}: experiment: write an experiment, or the path of its file relative to this one")
    if experiment.get("search") is not None:
        raise ConfigError(f"{source}: experiment.search: a search decides its own runs; remove it")
    rest = {key: value for key, value in document.items() if key not in {EXPERIMENT, FACTORS}}
    if isinstance(rest.get(_DESIGN), str):
        rest[_DESIGN] = {"kind": rest[_DESIGN]}
    try:
        settings = msgspec.convert({"name": default_name, **rest}, CampaignSettings, dec_hook=parse_unit)
        # Without factors a campaign repeats one experiment.
        factors = read_factors(document[FACTORS]) if FACTORS in document else ()
        campaign = Campaign(experiment, factors, settings)
    except msgspec.ValidationError as err:
        raise ConfigError(f"{source}: {explain(str(err), rest, CampaignSettings)}") from None
    except ValueError as err:
        raise ConfigError(f"{source}: {err}") from None
    if len(campaign.points) > most_points:
        raise ConfigError(
            f"{source}: design: {len(campaign.points):,} points are too many here; at most {most_points:,}"
        )
    for point in campaign.points:
        try:
            campaign.experiment(point.number)
        except ConfigError as err:
            raise ConfigError(f"{source}: {err}") from None
    return campaign


def swept(experiment: dict[str, Any], sweeps: Sequence[str], repeat: int, *, source: str, name: str) -> Campaign:
    """The campaign of `run --sweep key=a,b,c --repeat n`: every combination, n times."""
    factors: dict[str, Any] = {}
    for sweep in sweeps:
        key, equals, text = sweep.partition("=")
        levels = read_levels(text)
        if not equals or not key or len(levels) < 2:
            raise ConfigError(f"--sweep {key}: write two or more values, for example --sweep workload.rate=100,200")
        factors[key] = levels
    document = {EXPERIMENT: experiment, "repeat": repeat} | ({FACTORS: factors} if factors else {})
    return campaign_from(document, source=source, default_name=name)


def read_levels(text: str) -> list[Any]:
    """The values of a comma-separated list, as YAML reads them."""
    import yaml

    try:
        found = yaml.safe_load(f"[{text}]")
    except yaml.YAMLError:
        return []
    return found if isinstance(found, list) else []
