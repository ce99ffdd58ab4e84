"""Real systems beside those that the whole suite shares, started once for all tests of inspectors."""

from collections.abc import Iterator

import pytest

from crescendo.run.processes import die_with_parent
from crescendo.systems.base import Instance
from crescendo.systems.instance import start
from crescendo.systems.registry import system_of


def _running(kind: str, factory: pytest.TempPathFactory) -> Iterator[Instance]:
    directory = factory.mktemp(kind) / "instance"
    instance = start(system_of(kind), {}, directory=directory, on_fork=die_with_parent())
    try:
        yield instance
    finally:
        instance.stop()


@pytest.fixture(scope="session")
def artemis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Instance]:
    yield from _running("artemis", tmp_path_factory)


@pytest.fixture(scope="session")
def activemq(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Instance]:
    yield from _running("activemq", tmp_path_factory)


@pytest.fixture(scope="session")
def qpid_broker_j(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Instance]:
    yield from _running("qpid-broker-j", tmp_path_factory)


@pytest.fixture(scope="session")
def qpid_dispatch(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Instance]:
    yield from _running("qpid-dispatch", tmp_path_factory)
