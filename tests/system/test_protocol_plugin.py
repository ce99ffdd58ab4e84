"""Does load flow over a protocol that another package offers?"""

from collections.abc import Callable
from pathlib import Path

import pytest

from crescendo.processes.die_with_parent import die_with_parent
from crescendo.systems.instance import start
from crescendo.systems.kinds.loopback import LOOPBACK
from protocol_plugin import install_protocol
from whole_runs import Launcher


def test_a_run_over_the_protocol_of_a_plugin_loses_nothing(
    launch: Launcher, experiment: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packages = tmp_path / "packages"
    packages.mkdir()
    install_protocol(packages)
    monkeypatch.setenv("PYTHONPATH", str(packages))
    relay = start(LOOPBACK, {}, directory=tmp_path / "relay", on_fork=die_with_parent())
    try:
        session = launch.without_analysis(
            experiment(
                system={"url": relay.url.replace("amqp://", "toy://")},
                workload={"protocol": "toy"},
                phases={"warmup": "0s", "measure": "500 messages", "drain": "5s"},
            )
        )
        done = session.finish()
    finally:
        relay.stop()
    assert done.stdout.split() == ["sealed"], done.stderr
    counts = {peer["role"]: peer["statistics"] for peer in session.manifest()["peers"]}
    assert counts["sender"]["messages"] == counts["receiver"]["messages"] == 1000
