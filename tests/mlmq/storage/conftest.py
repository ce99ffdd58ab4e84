"""The tests of the storage run on the oldest and on the newest PostgreSQL that is supported, and in soak on all others.

The other tests of MLMQ use the version that is embedded by default.
"""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from crescendo.mlmq import postgres as embedded
from crescendo.mlmq.postgres import binaries, cluster
from crescendo.processes.die_with_parent import die_with_parent

SUITE = ("13", "18")
SOAK = ("14", "15", "16", "17")
OWN = os.environ.get("CRESCENDO_TEST_POSTGRES", "")
"""The directory with the programs of one more version, such as /usr/lib/postgresql/15/bin."""

ServerOf = Callable[[str], embedded.Server]


def programs_of(version: str) -> Path:
    if version == OWN:
        return Path(OWN)
    for programs in binaries._installations():
        if binaries._version(programs) == version:
            return programs
    pytest.fail(f"PostgreSQL {version} is missing; run: crescendo system install postgresql --version {version}")


@pytest.fixture(scope="session")
def server_of() -> Iterator[ServerOf]:
    """One server of each version that is asked for."""
    started: dict[str, embedded.Server] = {}

    def serve(version: str) -> embedded.Server:
        if version not in started:
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(cluster, "find", lambda data: programs_of(version))
                started[version] = embedded.start(max_connections=200, on_fork=die_with_parent())
        return started[version]

    yield serve
    for server in started.values():
        server.stop()


# Of each test by itself: pytest would sort all tests by the parameters of a session.
@pytest.fixture(
    params=[*SUITE, *(pytest.param(version, marks=pytest.mark.soak) for version in (*SOAK, *filter(None, [OWN])))],
    ids=lambda version: f"PostgreSQL-{Path(version).parent.name if '/' in version else version}",
)
def postgres(request: pytest.FixtureRequest, server_of: ServerOf) -> embedded.Server:
    """A server of this version with default settings. Do not stop it: other tests use it too."""
    return server_of(request.param)
