"""Hosts and links of a lab, as a file may and may not describe them."""

from typing import Any

import pytest

from crescendo.model.errors import ConfigError
from crescendo.model.experiment_file import experiment_from, to_document

LAB: dict[str, Any] = {
    "system": "server",
    "hosts": {
        "server": {},
        "station": {"access_point": "home", "rate": "20Mbit", "up": {"delay": "5ms", "loss": "1%"}, "rto_min": "20ms"},
    },
    "access_points": {"home": {}, "street": {"network": 1}},
}


def document(**changed: Any) -> dict[str, Any]:
    return {"name": "moving", "workload": {"rate": 10}, "lab": LAB | changed}


def test_a_lab_survives_being_written_and_read() -> None:
    experiment = experiment_from(document())
    assert experiment.lab is not None
    assert experiment.lab.hosts["station"].is_impaired
    assert not experiment.lab.hosts["server"].is_impaired
    assert experiment_from(to_document(experiment)) == experiment
    assert "lab" not in to_document(experiment_from({"name": "plain", "workload": {"rate": 10}}))


@pytest.mark.parametrize(
    ("changed", "complaint"),
    [
        ({"system": "sever"}, "did you mean 'server'"),
        ({"hosts": {"server": {}, "Station": {}}}, "'Station' is not a valid name"),
        ({"hosts": {"server": {}, "station": {"access_point": "work"}}}, "'work' is not an access point"),
        ({"hosts": {"server": {"access_point": "home"}}}, "give it a cable"),
        ({"hosts": {"server": {"up": {"jitter": "2ms"}}}}, "jitter must not be longer than delay"),
        ({"hosts": {"server": {"up": {"reorder": "1%"}}}}, "reorder needs a delay"),
        ({"hosts": {"server": {"down": {"loss": 0.01}}}}, "0 % to 100 %"),
        ({"hosts": {"server": {"rate": "1kbit"}}}, "at least 8kbit"),
        ({"hosts": {"server": {"rto_min": "1us"}}}, "1ms to 120s"),
    ],
)
def test_mistakes_name_their_cure(changed: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        experiment_from(document(**changed))


def test_hosts_of_a_lab_reach_no_other_system() -> None:
    with pytest.raises(ConfigError, match="hosts reach only each other"):
        experiment_from(document() | {"workload": {"rate": 10, "address": "amqp://127.0.0.1:5672/queue/perf"}})
    with pytest.raises(ConfigError, match=r"give system\.kind"):
        experiment_from(document() | {"system": {"url": "amqp://127.0.0.1:5672"}})
