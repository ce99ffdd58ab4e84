"""Does one sentence say why a connection failed?"""

import resource

import pytest

from crescendo.model.errors import ConfigError
from crescendo.net.sockets import connect, listen


def test_too_few_open_files_are_reported_with_a_cure() -> None:
    allowed, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with listen() as listener:
        resource.setrlimit(resource.RLIMIT_NOFILE, (3, most))
        try:
            with pytest.raises(ConfigError, match=r"may have 3 open files.*ulimit -n"):
                connect("127.0.0.1", listener.getsockname()[1])
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, most))
