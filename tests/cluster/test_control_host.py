"""The control broker of a cluster: who learns its password, what is left alone, what is never overwritten."""

import stat
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from crescendo.cluster import cluster_lifecycle
from crescendo.cluster.cluster_file import read_hosts, read_plan
from crescendo.cluster.cluster_lifecycle import ClusterAccess, take_down
from crescendo.cluster.control_host import access_of
from crescendo.cluster.host_session import on_every
from crescendo.control.bus import Bus
from crescendo.control.peer import identity_of_this_process
from crescendo.control.trust import Lab
from crescendo.model.errors import ConfigError
from crescendo.model.url_files import files_of_url
from crescendo.model.urls import parse_url
from interop_peers import free_port

LAB = Lab("c0de" * 12)


@pytest.fixture
def inventory(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "hosts.ini"
    lines = [
        f"[control]\nc ansible_host=127.0.0.1 crescendo_control_port={free_port()}",
        "[senders]\nc crescendo_senders=0\ns",
        f"[all:vars]\nansible_connection=local\nansible_python_interpreter={sys.executable}",
        f"crescendo_directory={tmp_path}/on-hosts\ncrescendo_python={sys.executable}",
    ]
    path.write_text("\n".join(lines) + "\n")
    yield path
    take_down(read_plan(path), LAB, lambda _: None, tmp_path / "control.url")


def started(inventory: Path, url_file: Path) -> tuple[str, list[str]]:
    """The part of `up` that concerns the broker."""
    hosts = read_hosts(inventory, LAB.scope.name)
    looks, _ = on_every(hosts, lambda session: session.ask("look", 60))
    control, names = cluster_lifecycle._control(hosts, ClusterAccess("", LAB, url_file), looks, lambda _: None)
    return control.url, names


def test_a_broker_is_started_once_with_an_account_of_its_own(inventory: Path, tmp_path: Path) -> None:
    url_file = tmp_path / "control.url"
    url, names = started(inventory, url_file)
    assert names == ["control-c"]
    assert started(inventory, url_file) == (url, [])
    parts = parse_url(url)
    assert url_file.read_text() == url + "\n"
    assert all(stat.S_IMODE(path.stat().st_mode) == 0o600 for path in tmp_path.glob("control.url*"))
    arguments = [process.info["cmdline"] for process in psutil.process_iter(["cmdline"])]
    assert not any((parts.password or "?") in " ".join(words or ()) for words in arguments)
    own = identity_of_this_process("a", "b")
    with pytest.raises(ConfigError, match="certificate verify failed"):
        Bus(url.partition("?")[0], LAB.scope, own, ()).connect(30)
    bus = Bus(url, LAB.scope, own, ())
    bus.connect(30)
    bus.close()
    assert take_down(read_plan(inventory), LAB, lambda _: None, url_file) == 1
    assert not list(tmp_path.glob("control.url*"))
    assert not (tmp_path / "on-hosts").exists()


def test_the_url_of_another_broker_is_neither_overwritten_nor_deleted(inventory: Path, tmp_path: Path) -> None:
    url_file = tmp_path / "control.url"
    url_file.write_text("mqtt://mine:1883\n")
    with pytest.raises(ConfigError, match=r"control\.url: names another control broker"):
        started(inventory, url_file)
    take_down(read_plan(inventory), LAB, lambda _: None, url_file)
    assert url_file.read_text() == "mqtt://mine:1883\n"


def test_certificates_that_a_control_url_names_go_to_the_hosts(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("an authority")
    access = access_of(f"mqtts://a:b@broker:8883?ca={tmp_path}/ca.pem")
    files = access.on_host("/srv/lab")
    assert files_of_url(files.pop("control.url")) == ["/srv/lab/control-0.pem"]
    assert files == {"control-0.pem": "an authority"}
    with pytest.raises(ConfigError, match="the control URL names a file that cannot be read"):
        access_of(f"mqtts://broker?ca={tmp_path}/none.pem")
