"""Does an inventory say which peers run where, and how ssh reaches them?"""

from pathlib import Path

import pytest

from crescendo.cluster.cluster_file import ControlPlace, read_hosts, read_plan
from crescendo.model.errors import ConfigError

INI = """
[senders:children]
north
south
[north]
n[1:2]
[south]
s1 ansible_host=10.0.0.9 ansible_port=2222 crescendo_senders=3
[receivers]
r1 ansible_connection=local
s1
[systems]
broker
[all:vars]
ansible_user=perf
ansible_ssh_private_key_file=/keys/perf
ansible_ssh_common_args='-o StrictHostKeyChecking=accept-new'
crescendo_labels=lab,fast
"""
AGENT = "sources: [{from: /srv/handlers, commits: [2c26b46b68ffc68ff99b453c1d30413413422d70]}]\n"
YAML = """
all:
  vars: {ansible_user: perf, crescendo_labels: [lab, fast]}
  children:
    senders:
      children:
        north: {hosts: {"n[1:2]": {}}}
        south: {hosts: {s1: {ansible_host: 10.0.0.9, crescendo_senders: 3}}}
    receivers: {hosts: {s1: {}, r1: {ansible_connection: local}}}
    systems: {hosts: {broker: {}}}
"""


@pytest.mark.parametrize(("name", "text"), [("hosts.ini", INI), ("hosts.yml", YAML)])
def test_groups_are_roles_and_labels(tmp_path: Path, name: str, text: str) -> None:
    path = tmp_path / name
    path.write_text(text)
    hosts = {host.name: host for host in read_hosts(read_plan(path).inventory, "lab-1")}
    assert set(hosts) == {"n1", "n2", "s1", "r1"}  # the broker runs no peer
    assert {name: [peer.id for peer in host.peers] for name, host in hosts.items()} == {
        "n1": ["sender-n1"],
        "n2": ["sender-n2"],
        "s1": ["sender-s1", "sender-s1-2", "sender-s1-3", "receiver-s1"],
        "r1": ["receiver-r1"],
    }
    assert hosts["n1"].peers[0].labels == ("fast", "lab", "north")
    assert hosts["s1"].directory == "~/.crescendo/cluster/lab-1/s1"
    assert hosts["r1"].ssh == ()
    assert hosts["s1"].ssh[-2:] == ("--", "10.0.0.9")


def test_one_host_runs_the_control_broker_and_agents_bring_their_configuration(tmp_path: Path) -> None:
    path = tmp_path / "hosts.ini"
    path.write_text(
        "[control]\nc1 ansible_host=10.0.0.1 crescendo_control_port=9883\n"
        "[agents]\nb1 crescendo_agent_config=agent.yml\n[senders]\nb1\n"
    )
    (tmp_path / "agent.yml").write_text(AGENT)
    broker, host = read_hosts(path, "lab-1")
    assert (broker.peers, broker.control) == ((), ControlPlace("control-c1", "10.0.0.1", 9883))
    assert {peer.id: peer.settings for peer in host.peers} == {"sender-b1": "", "agent-b1": AGENT}
    assert host.control is None


def test_variables_of_ansible_become_options_of_ssh(tmp_path: Path) -> None:
    path = tmp_path / "hosts.ini"
    path.write_text(INI)
    host = next(host for host in read_hosts(path, "lab-1") if host.name == "s1")
    assert host.ssh == (
        "-p", "2222", "-l", "perf", "-i", "/keys/perf", "-o", "StrictHostKeyChecking=accept-new", "--", "10.0.0.9",
    )  # fmt: skip


def test_a_cluster_file_names_everything_relative_to_itself(tmp_path: Path) -> None:
    path = tmp_path / "cluster.yml"
    path.write_text(
        "inventory: hosts.ini\ncontrol_file: control.url\ntoken_file: lab.token\n"
        "provision: [./start-machines, --count, '4']\nrelease: [make, release]\ndeprovision: [./stop-machines]\n"
    )
    plan = read_plan(path)
    assert (plan.inventory, plan.control_file) == (tmp_path / "hosts.ini", tmp_path / "control.url")
    assert plan.provision == ("./start-machines", "--count", "4")


@pytest.mark.parametrize(
    ("name", "text", "sentence"),
    [
        ("hosts.ini", "[routers]\na\n", "no host is in one of the groups senders, receivers, inspectors, agents"),
        ("hosts.ini", "[control]\na\n", "no host is in one of the groups"),
        ("hosts.ini", "[control]\na\nb\n[senders]\na\n", "a, b are in the group control; a cluster has one"),
        ("hosts.ini", "[control]\na crescendo_control_port=mqtt\n", "a: crescendo_control_port must be a TCP port"),
        ("hosts.ini", "[agents]\na\n", "a: an agent needs crescendo_agent_config: a file beside the inventory"),
        ("hosts.ini", "[agents]\na crescendo_agent_config=no.yml\n", "no.yml: cannot be read"),
        ("hosts.ini", "[senders]\na ansible_host=-oProxyCommand=evil\n", "a: host names and addresses consist of"),
        ("hosts.ini", "[senders]\na ansible_password=x\n", "a: ansible_password: ssh is given keys or an agent"),
        ("hosts.ini", "[senders]\na crescendo_senders=many\n", "a: crescendo_senders must be a number of processes"),
        ("hosts.ini", '[senders]\na ansible_ssh_common_args="\'"\n', "a: ansible_ssh_common_args: No closing"),
        ("cluster.yml", "inventory: hosts.ini\nprovision: make all\n", "cluster.yml: .*provision"),
        ("cluster.yml", "inventory: hosts.ini\nprovison: [make]\n", "cluster.yml: .*provison"),
    ],
)
def test_a_mistake_names_the_file_and_the_host(tmp_path: Path, name: str, text: str, sentence: str) -> None:
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(ConfigError, match=sentence):
        read_hosts(read_plan(path).inventory, "lab-1")
