"""What does a run ask of the system that it starts?"""

from crescendo.model.experiment_file import experiment_from
from crescendo.run.system_start import declared_settings
from crescendo.systems.registry import system_of


def test_a_selector_is_not_part_of_the_name_of_a_declared_queue() -> None:
    groups = [
        {"name": "red", "address": "queue://shop?selector=colour='red'&durable=yes"},
        {"name": "blue", "address": "queue://shop?selector=colour='blue'"},
        {"name": "all", "address": "queue://other"},
    ]
    experiment = experiment_from({"name": "x", "system": {"kind": "artemis"}, "workload": groups})
    assert declared_settings(system_of("artemis"), experiment) == {"queues": ["other", "shop"]}
