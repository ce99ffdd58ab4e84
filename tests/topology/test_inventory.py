"""Machines, groups and addresses from an Ansible inventory."""

from pathlib import Path

import pytest

from crescendo.model.errors import ConfigError
from crescendo.topology.inventory import read_inventory

APPENDIX_C = """
[clients]
sender ansible_host=10.0.0.1
receiver ansible_host=10.0.0.2

[routers]
router1 ansible_host=10.0.0.3
router2 ansible_host=10.0.0.4

[brokers]
broker1 ansible_host=10.0.0.5

[nodes:children]
brokers
clients
routers
"""


def _ini(folder: Path, text: str) -> Path:
    path = folder / "inventory"
    path.write_text(text)
    return path


def test_addresses_of_the_inventory_are_used(tmp_path: Path) -> None:
    inventory = read_inventory(_ini(tmp_path, APPENDIX_C))
    assert {name: host.address for name, host in inventory.hosts.items()} == {
        "sender": "10.0.0.1",
        "receiver": "10.0.0.2",
        "router1": "10.0.0.3",
        "router2": "10.0.0.4",
        "broker1": "10.0.0.5",
    }


def test_children_of_groups_are_resolved(tmp_path: Path) -> None:
    text = APPENDIX_C + "\n[lab:children]\nnodes\n"
    inventory = read_inventory(_ini(tmp_path, text))
    assert inventory.group("nodes") == ("broker1", "sender", "receiver", "router1", "router2")
    assert inventory.group("lab") == inventory.group("nodes")
    assert inventory.hosts["router1"].groups == {"routers", "nodes", "lab"}


def test_ini_and_yaml_say_the_same(tmp_path: Path) -> None:
    ini = _ini(
        tmp_path, "[routers]\nrouter[1:3] site=a\n[lab:children]\nrouters\n[lab:vars]\nsite=b\nansible_host=10.0.0.9\n"
    )
    (tmp_path / "hosts.yml").write_text(
        "lab:\n  vars: {site: b, ansible_host: 10.0.0.9}\n  children:\n    routers:\n      hosts:\n"
        "        router[1:3]: {site: a}\n"
    )
    first, second = read_inventory(ini), read_inventory(tmp_path / "hosts.yml")
    assert first.hosts == second.hosts
    assert first.group("lab") == second.group("lab") == ("router1", "router2", "router3")
    assert first.hosts["router2"].variables == {"site": "a", "ansible_host": "10.0.0.9"}


def test_an_inner_group_overrides_an_outer_one(tmp_path: Path) -> None:
    text = "[all:vars]\nx=1\n[inner]\nhost\n[outer:children]\ninner\n[outer:vars]\nx=2\n[inner:vars]\nx=3\n"
    assert read_inventory(_ini(tmp_path, text)).hosts["host"].variables == {"x": "3"}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[a:children]\nb\n[b:children]\na\n", "is a child of itself"),
        ("[a:children]\nmissing\n", "no group is called missing"),
        ("[a]\nhost variable\n", "line 2: 'variable' is not a variable"),
        ("[a:hosts]\nhost\n", "line 1: expected"),
        ("[a]\nhost[5:1]\n", "is empty"),
        ("[a]\nhost[1:999999999]\n", "more than 10,000 hosts"),
        ('[a]\nhost x="1\n', "line 2"),
    ],
)
def test_a_mistake_is_named_in_one_sentence(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        read_inventory(_ini(tmp_path, text))
