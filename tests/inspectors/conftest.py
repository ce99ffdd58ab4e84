"""The router, in addition to the systems that the whole suite shares. Only where it is installed."""

from collections.abc import Iterator

import pytest

from crescendo.processes.die_with_parent import die_with_parent
from crescendo.systems.base import Instance
from crescendo.systems.instance import start
from crescendo.systems.registry import system_of


@pytest.fixture(scope="session")
def qpid_dispatch(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Instance]:
    directory = tmp_path_factory.mktemp("qpid-dispatch") / "instance"
    instance = start(system_of("qpid-dispatch"), {}, directory=directory, on_fork=die_with_parent())
    try:
        yield instance
    finally:
        instance.stop()
