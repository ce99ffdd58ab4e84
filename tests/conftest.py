"""What does the whole suite share? Hypothesis without its stopwatch, and brokers that are started once."""

from collections.abc import Iterator

import pytest
from hypothesis import settings

from crescendo.run.processes import die_with_parent
from crescendo.systems.instance import RunningInstance, start
from crescendo.systems.registry import system_of

settings.register_profile("busy-machine", deadline=None)  # there a slow example is no failure
settings.load_profile("busy-machine")


def _standing(kind: str, factory: pytest.TempPathFactory) -> Iterator[RunningInstance]:
    directory = factory.mktemp(kind) / "instance"
    instance = start(system_of(kind), {}, directory=directory, on_fork=die_with_parent())
    yield instance
    instance.stop()


@pytest.fixture(scope="session")
def rabbitmq(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningInstance]:
    """RabbitMQ with everything at its default. Use queues of your own names: others are on it too."""
    yield from _standing("rabbitmq", tmp_path_factory)


@pytest.fixture(scope="session")
def mosquitto(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningInstance]:
    """Mosquitto with everything at its default. Use topics of your own names."""
    yield from _standing("mosquitto", tmp_path_factory)
