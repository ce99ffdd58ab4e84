"""What does the whole suite share? Hypothesis without its stopwatch, and systems and a Spark that are started once.

Each is started by the first test that asks for it and stopped when the suite is over, so it must be left as it was
found: who stops, kills or configures a system starts one of their own.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

from crescendo.processes.die_with_parent import die_with_parent
from crescendo.systems.instance import RunningInstance, start
from crescendo.systems.registry import system_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# There a slow example is no failure, nor are examples that are slow to make.
settings.register_profile("busy-machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("busy-machine")


def _standing(kind: str, factory: pytest.TempPathFactory, **chosen: object) -> Iterator[RunningInstance]:
    directory = factory.mktemp(kind) / "instance"
    instance = start(system_of(kind), chosen, directory=directory, on_fork=die_with_parent())
    yield instance
    instance.stop()


@pytest.fixture(scope="session")
def rabbitmq(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningInstance]:
    """RabbitMQ with everything at its default. Use queues of your own names: others are on it too."""
    yield from _standing("rabbitmq", tmp_path_factory)


@pytest.fixture(scope="session")
def secure_rabbitmq(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningInstance]:
    """RabbitMQ with TLS beside the plain listeners: it asks for a certificate, and lets in who has none."""
    yield from _standing("rabbitmq", tmp_path_factory, tls={"client_certificates": "optional"})


@pytest.fixture(scope="session")
def mosquitto(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningInstance]:
    """Mosquitto with everything at its default. Use topics of your own names."""
    yield from _standing("mosquitto", tmp_path_factory)


@pytest.fixture(scope="session")
def activemq(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningInstance]:
    """ActiveMQ Classic with everything at its default."""
    yield from _standing("activemq", tmp_path_factory)


@pytest.fixture(scope="session")
def artemis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningInstance]:
    """Artemis with everything at its default."""
    yield from _standing("artemis", tmp_path_factory)


@pytest.fixture(scope="session")
def qpid_broker_j(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningInstance]:
    """Qpid Broker-J with everything at its default."""
    yield from _standing("qpid-broker-j", tmp_path_factory)


@pytest.fixture(scope="session")
def mlmq(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningInstance]:
    """MLMQ on an embedded PostgreSQL, with two brokers. Use queues of your own names."""
    yield from _standing("mlmq", tmp_path_factory, brokers=2)


@pytest.fixture(scope="session")
def spark() -> Iterator["SparkSession"]:
    """One quiet Spark: starting it, and its first analysis, cost more than a dozen analyses after that."""
    from crescendo.pipeline.spark.java import use_java
    from crescendo.pipeline.spark.session import close_session, open_session

    use_java()
    session = open_session()
    yield session
    close_session(session)
