"""Fixtures of the whole suite: Hypothesis without deadlines, and systems and a Spark session that are started once.

Each is started by the first test that requests it and stopped at the end of the suite, so tests must leave it as they
found it. A test that stops, kills or configures a system starts its own.
"""

import os
import secrets
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

from crescendo.pipeline.spark.settings import JAVA_OPTIONS_VARIABLE
from crescendo.processes.die_with_parent import die_with_parent
from crescendo.systems.instance import RunningInstance, start
from crescendo.systems.registry import system_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytest_plugins = ["parallel_groups"]

# Analyses in tests are short: compiling less saves a third of their CPU time.
os.environ.setdefault(JAVA_OPTIONS_VARIABLE, "-XX:TieredStopAtLevel=1")

# Tests start thousands of Python processes. Where the environment forbids compiled modules on disk, each of them would
# compile Crescendo again, which is a third of what it takes to start a peer (0.60 and 0.38 s of CPU time).
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# A shell starts a background job with SIGINT ignored, and children inherit that: interrupted by a test, they go on.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# On a busy machine neither a slow example nor slow generation of examples is a failure.
settings.register_profile("busy-machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("busy-machine")


@pytest.fixture(scope="module")
def reachable_dir() -> Iterator[Path]:
    """A directory that every account can reach, unlike pytest's own: as root, systems in it do not run as root."""
    made = Path(tempfile.mkdtemp(prefix="crescendo-test-"))
    made.chmod(0o755)
    yield made
    shutil.rmtree(made, ignore_errors=True)


PASSWORD = secrets.token_hex(12)
"""The same for these brokers, so that a test can join them to a network."""


def _session_system(kind: str, factory: pytest.TempPathFactory, **chosen: object) -> Iterator[RunningInstance]:
    directory = factory.mktemp(kind) / "instance"
    instance = start(system_of(kind), chosen, directory=directory, on_fork=die_with_parent())
    yield instance
    instance.stop()


@pytest.fixture(scope="session")
def rabbitmq(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningInstance]:
    """RabbitMQ with default settings. Use unique queue names: other tests share it."""
    yield from _session_system("rabbitmq", tmp_path_factory, password=PASSWORD)


@pytest.fixture(scope="session")
def secure_rabbitmq(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningInstance]:
    """RabbitMQ with TLS next to the plain listeners: it requests a client certificate, but does not require one."""
    yield from _session_system("rabbitmq", tmp_path_factory, tls={"client_certificates": "optional"})


@pytest.fixture(scope="session")
def mosquitto(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningInstance]:
    """Mosquitto with default settings. Use unique topic names."""
    yield from _session_system("mosquitto", tmp_path_factory)


@pytest.fixture(scope="session")
def activemq(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningInstance]:
    """ActiveMQ Classic with default settings."""
    yield from _session_system("activemq", tmp_path_factory, password=PASSWORD)


@pytest.fixture(scope="session")
def artemis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningInstance]:
    """Artemis with default settings."""
    yield from _session_system("artemis", tmp_path_factory, password=PASSWORD)


@pytest.fixture(scope="session")
def qpid_broker_j(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningInstance]:
    """Qpid Broker-J with default settings."""
    yield from _session_system("qpid-broker-j", tmp_path_factory, password=PASSWORD)


@pytest.fixture(scope="session")
def mlmq(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningInstance]:
    """MLMQ on an embedded PostgreSQL, with two brokers. Use unique queue names."""
    yield from _session_system("mlmq", tmp_path_factory, brokers=2)


@pytest.fixture(scope="session")
def spark() -> Iterator["SparkSession"]:
    """One quiet Spark session: starting it, and its first analysis, cost more than a dozen later analyses."""
    from crescendo.pipeline.spark.java import use_java
    from crescendo.pipeline.spark.session import close_session, open_session

    use_java()
    session = open_session()
    yield session
    close_session(session)
