"""Is a campaign file read as it is written, and is a mistake explained?"""

from pathlib import Path
from typing import Any

import pytest

from crescendo.model.campaign import describe_levels
from crescendo.model.campaign_file import campaign_from, load_campaign, swept
from crescendo.model.errors import ConfigError
from crescendo.model.experiment_file import experiment_from, to_document

EXPERIMENT: dict[str, Any] = {"workload": {"rate": 10}, "phases": {"measure": "1s"}}


def test_an_experiment_may_be_a_file_beside_the_campaign(tmp_path: Path) -> None:
    (tmp_path / "load.yml").write_text("workload: {rate: 10}\n")
    (tmp_path / "many loads.yml").write_text("experiment: load.yml\nfactors: {workload.rate: [10, 20]}\n")
    campaign = load_campaign(tmp_path / "many loads.yml")
    assert (campaign.name, len(campaign.points)) == ("many-loads", 2)
    assert campaign.experiment(1).workload[0].rate == 20


def test_topologies_stand_beside_the_campaign(tmp_path: Path) -> None:
    levels = "{one: {topology: one.yml, workload.rate: 1}, two: {topology: two.yml, workload.rate: 2}}"
    load = "{send_to: a, receive_from: b}"
    text = f"experiment: {{topology: base.yml, workload: {load}}}\nfactors: {{network: {{levels: {levels}}}}}\n"
    (tmp_path / "networks.yml").write_text(text)
    campaign = load_campaign(tmp_path / "networks.yml")
    found = [campaign.experiment(point.number).topology for point in campaign.points]
    assert found == [str(tmp_path / "one.yml"), str(tmp_path / "two.yml")]


def test_a_factor_may_be_the_system_itself() -> None:
    factors = {"broker": {"levels": {"a": {"system.kind": "artemis", "system.version": "2.44.0"},
                                     "b": {"system.kind": "loopback", "system.version": None}}}}  # fmt: skip
    campaign = campaign_from({"experiment": EXPERIMENT, "factors": factors})
    assert [campaign.experiment(point).system.kind for point in (0, 1)] == ["artemis", "loopback"]
    assert campaign.experiment(0).system.version == "2.44.0"


def test_a_latin_hypercube_sets_values_between_the_levels() -> None:
    document = {"experiment": EXPERIMENT, "factors": {"workload.rate": [10, 1000], "workload.size": [100, 200]},
                "design": {"kind": "latin-hypercube", "points": 8}}  # fmt: skip
    campaign = campaign_from(document)
    rates = sorted(campaign.experiment(point).workload[0].rate for point in range(8))
    assert all(10 + 990 / 8 * at - 1 <= rate <= 10 + 990 / 8 * (at + 1) + 1 for at, rate in enumerate(rates))


def test_secrets_are_neither_shown_nor_part_of_the_fingerprint() -> None:
    def named(secret: str) -> Any:
        system = {"url": f"amqp://user:{secret}@host"}
        return campaign_from({"experiment": {**EXPERIMENT, "system": system}, "factors": {"workload.rate": [1, 2]}})

    assert named("one").fingerprint == named("other").fingerprint
    levels = {
        "levels": {"amqp://a:hidden@h": {"system.url": "amqp://a:hidden@h"}, "amqp://b": {"system.url": "amqp://b"}}
    }
    campaign = campaign_from({"experiment": EXPERIMENT, "factors": {"broker": levels}})
    assert "hidden" not in describe_levels(campaign.factors, campaign.points[0])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"factor": {}}, "did you mean 'factors'"),
        ({"experiment": 5}, "experiment: write an experiment"),
        ({"design": "2k"}, "design.kind: '2k' is not a valid value; write full, 2^k,"),
        ({"design": {"kind": "full", "points": 3}}, "only latin-hypercube"),
        ({"repeat": 0}, "repeat: 0 is out of range; write a number >= 1"),
        ({"order": "randm"}, "order: 'randm' is not a valid value; write random or written; did you mean 'random'?"),
        ({"until": {"metric": "rate"}}, "until: 'narrower' is missing"),
        ({"budget": "5"}, "budget: '5' is not a duration"),
        ({"until": {"metric": "rate", "narrower": "5"}}, "'5' is not a percentage such as 5%"),
        ({"metrics": ["speed"]}, "no metric is called 'speed'"),
        ({"metrics": ["span.X.median"]}, "must end with one of count, mean"),
        ({"factors": {"workload.rat": [1, 2]}}, "workload.rat=1: workload"),
        ({"factors": {"workload.rate": ["fast", 2]}}, "workload.rate=fast: workload"),
        ({"experiment": {**EXPERIMENT, "search": {}}}, "a search decides its own runs"),
    ],
)
def test_a_mistake_names_its_place_and_the_cure(change: dict[str, Any], message: str) -> None:
    document = {"experiment": EXPERIMENT, "factors": {"workload.rate": [1, 2]}, **change}
    with pytest.raises(ConfigError) as caught:
        campaign_from(document, source="c.yml")
    assert str(caught.value).startswith("c.yml: ")
    assert message in str(caught.value)


def test_a_sweep_is_every_combination() -> None:
    campaign = swept(EXPERIMENT, ["workload.rate=10,20", "workload.size=1KB,2KB"], 3, source="x", name="x")
    assert (len(campaign.points), campaign.settings.repeat) == (4, 3)
    assert int(campaign.experiment(3).workload[0].size) == 2000
    assert len(swept(EXPERIMENT, [], 5, source="x", name="x").points) == 1
    written = to_document(experiment_from(EXPERIMENT, default_name="x"))  # as `run --repeat` passes it, with every key
    assert len(swept(written, [], 5, source="x", name="x").points) == 1
    for mistake in ("workload.rate", "workload.rate=5", "=1,2", "workload.rate=[1,"):
        with pytest.raises(ConfigError, match="write two or more values"):
            swept(EXPERIMENT, [mistake], 1, source="x", name="x")
