"""Wherever a name is chosen from a list, a misspelt one is answered with the nearest and with the list."""

from collections.abc import Callable
from pathlib import Path

import pytest

from crescendo.calibrate.ceilings import check
from crescendo.cli.control import control
from crescendo.cli.peer import peer
from crescendo.exporters.registry import exporter_of
from crescendo.importers.registry import format_of
from crescendo.inspectors.registry import inspector_of
from crescendo.model.errors import ConfigError
from crescendo.model.protocols import default_port, protocol_of
from crescendo.systems.ports import choose_ports
from crescendo.systems.registry import system_of
from crescendo.topology.graph_types import links_of

MISSPELT: dict[str, tuple[Callable[[], object], str]] = {
    "exporter": (lambda: exporter_of("juint"), "junit"),
    "importer": (lambda: format_of("quivr"), "quiver"),
    "system": (lambda: system_of("rabitmq"), "rabbitmq"),
    "inspector": (lambda: inspector_of("artmis"), "artemis"),
    "protocol": (lambda: protocol_of("stmop"), "stomp"),
    "scheme": (lambda: default_port("mqt"), "mqtt"),
    "calibrated protocol": (lambda: check(["mqt"], [256], 1.0), "mqtt"),
    "port": (lambda: choose_ports(("amqp", "mqtt"), {"amqqp": 5}), "amqp"),
    "graph type": (lambda: links_of("sta", ["a"], [], fanout=2, cost=None), "star"),
    "role": (lambda: peer("sendr", Path()), "sender"),
    "action": (lambda: control("-", "wathc"), "watch"),
}


@pytest.mark.parametrize("name", MISSPELT)
def test_the_nearest_name_is_suggested(name: str) -> None:
    use, meant = MISSPELT[name]
    with pytest.raises(ConfigError, match=rf"did you mean '{meant}'\? known: .*\b{meant}\b"):
        use()
