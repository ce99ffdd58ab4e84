"""Does a run that asks for it get an installation that nobody has used or changed?"""

import hashlib
from collections.abc import Callable
from pathlib import Path

import pytest

from crescendo.model.errors import ConfigError
from crescendo.model.experiment_file import experiment_from
from crescendo.systems.install.fresh import install_fresh
from crescendo.systems.registry import system_of
from whole_runs import Launcher


def test_what_is_part_of_crescendo_has_nothing_to_install(tmp_path: Path) -> None:
    installed = install_fresh(system_of("relay"), None, tmp_path / "fresh", print)
    assert installed == (None, "part of Crescendo")


def test_a_package_with_a_changed_file_is_refused_and_one_without_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """dpkg itself is asked, about packages in a database of our own."""
    file = tmp_path / "root" / "program"
    file.parent.mkdir()
    file.write_text("as packaged")
    database = tmp_path / "dpkg"
    (database / "info").mkdir(parents=True)
    status = (
        "Package: {0}\nStatus: install ok installed\nVersion: 1\nArchitecture: all\nMaintainer: us\nDescription: x\n"
    )
    (database / "status").write_text(status.format("mosquitto"))
    (database / "info" / "mosquitto.list").write_text(f"{file}\n")
    digest = "a0b6d3d8d6c0ea1a3a4e8d0e4d3a2c2f"
    (database / "info" / "mosquitto.md5sums").write_text(f"{digest}  {str(file).lstrip('/')}\n")
    monkeypatch.setenv("DPKG_ADMINDIR", str(database))
    with pytest.raises(ConfigError, match=r"mosquitto was changed: .*program; run: apt-get install --reinstall"):
        install_fresh(system_of("mosquitto"), None, tmp_path / "fresh", lambda _: None)
    right = hashlib.md5(file.read_bytes(), usedforsecurity=False).hexdigest()
    (database / "info" / "mosquitto.md5sums").write_text(f"{right}  {str(file).lstrip('/')}\n")
    installed = install_fresh(system_of("mosquitto"), None, tmp_path / "fresh", lambda _: None)
    assert installed == (None, "every file of mosquitto is as packaged")


def test_what_the_user_installed_is_not_installed_again() -> None:
    with pytest.raises(ConfigError, match="fresh"):
        experiment_from({"system": {"kind": "artemis", "home": "/opt/artemis", "fresh": True}}, default_name="x")
    with pytest.raises(ConfigError, match="fresh has no effect with url"):
        experiment_from({"system": {"url": "amqp://127.0.0.1", "fresh": True}}, default_name="x")


@pytest.mark.soak
def test_a_release_is_unpacked_for_each_run_and_removed_with_it(
    experiment: Callable[..., Path], launch: Launcher
) -> None:
    path = experiment(
        system={"kind": "artemis", "fresh": True, "settings": {"memory": "256MiB"}}, workload={"rate": 50}
    )
    session = launch.without_analysis(path)
    ended = session.finish()
    assert ended.stdout.split() == ["sealed"], ended.stderr
    facts = session.manifest()["system"]
    assert facts["fresh"] == "unpacked for this run"
    assert Path(facts["home"]).parent == session.run_dir().resolve() / "installation"
    assert not (session.run_dir() / "installation").exists()
