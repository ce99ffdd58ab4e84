"""Every kind of link between real brokers, all in one network: what it carries, what it changes, what a cut does to it.

The network starts once; a test of another network starts its own, in soak. Messages are compared one by one with what
was sent, and python-proton agrees with how they are encoded (test_link_fidelity).
"""

import contextlib
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

import pytest

from crescendo.model.errors import ConfigError
from crescendo.systems.instance import RunningInstance
from crescendo.topology.address_ways import Way, ways_of
from crescendo.topology.generate import Network
from crescendo.topology.link_fidelity import LinkFidelity
from crescendo.topology.link_proxy import LinkProxy, proxied_links
from crescendo.topology.link_status import unconnected_links
from crescendo.topology.local_network import local_network, running_network
from crescendo.topology.topology_file import load_topology
from federations import EVERY_LINK, Scissors, probe_all
from networks import broker, link, topology_of

pytestmark = pytest.mark.soak  # starting seven brokers takes more than a minute

MESSAGES = 2000
CUT_MESSAGES, CUT_AFTER, CUT_S = 450, 150, 1.0

WAYS = ways_of(load_topology(EVERY_LINK).graph)


FAITHFUL = (
    *("relay-relay", "activemq-network", "rabbitmq-shovel", "rabbitmq-federation"),
    *("artemis-bridge", "artemis-amqp-bridge", "artemis-federation", "artemis-to-qpid", "qpid-to-artemis"),
    *("activemq-relay-qpid", "qpid-relay-artemis", "artemis-relay-rabbitmq", "rabbitmq-relay-activemq"),
)
"""Links that change nothing. The others are in soak, and docs/federation.md says what is known of them."""

CUT = (
    *("relay-relay", "activemq-network", "artemis-bridge", "artemis-amqp-bridge", "artemis-federation"),
    *("artemis-to-qpid", "qpid-to-artemis", "activemq-relay-qpid", "qpid-relay-artemis"),
)
NEVER_REPEATS = "artemis-bridge"
"""It detects duplicates; the others may send again what was not acknowledged when they were cut."""


class Federations(NamedTuple):
    """The running network, and a proxy on each of its links."""

    network: Network
    running: Mapping[str, RunningInstance]
    proxies: list[LinkProxy]

    def unconnected(self) -> dict[str, list[str]]:
        """The links that are not connected, by the node that opens them, in its words."""
        found = {
            node.id: unconnected_links(self.network, node, self.running[node.id].endpoints)
            for node in self.network.graph.nodes
        }
        return {name: links for name, links in found.items() if links}


@pytest.fixture(scope="module")
def federations() -> Iterator[Federations]:
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="crescendo-test-")))
        folder.chmod(0o755)  # so that brokers need not run as root
        network = local_network(load_topology(EVERY_LINK))
        proxied, proxies = stack.enter_context(proxied_links(network))
        running = stack.enter_context(running_network(proxied, folder / "nodes"))
        yield Federations(proxied, running, [proxy for of_link in proxies.values() for proxy in of_link])


@pytest.fixture(scope="module")
def carried(federations: Federations) -> dict[str, LinkFidelity | str]:
    """2,000 messages over every federation."""
    graph = federations.network.graph
    ways = {name: WAYS[name] for name in FAITHFUL}
    return probe_all(graph, federations.running, ways, MESSAGES, at_once=4, idle_s=20)


@pytest.fixture(scope="module")
def cut(federations: Federations, carried: dict[str, LinkFidelity | str]) -> Iterator[dict[str, LinkFidelity | str]]:
    """Some messages over every federation, whose links are cut while they cross."""
    scissors = Scissors(federations.proxies, len(CUT), CUT_S)
    try:
        yield probe_all(
            federations.network.graph,
            federations.running,
            {name: WAYS[name] for name in CUT},
            CUT_MESSAGES,
            at_once=len(CUT),
            idle_s=20,
            linger_s=2,
            on_sent=scissors.on_sent(CUT_AFTER),
        )
    finally:
        scissors.join()


def test_no_manifest_has_the_password_of_the_network(federations: Federations) -> None:
    for name, instance in federations.running.items():
        password = urlsplit(instance.endpoints["amqp"]).password
        assert (password is None) is name.startswith("relay")
        assert password is None or password not in str(instance.facts)


def _checked(found: LinkFidelity | str) -> LinkFidelity:
    assert isinstance(found, LinkFidelity), found
    return found


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", FAITHFUL)
def test_a_federation_carries_every_message_once_in_order_and_unchanged(
    name: str, carried: dict[str, LinkFidelity | str]
) -> None:
    found = _checked(carried[name])
    assert (found.sent, found.lost, found.duplicated, found.reordered) == (MESSAGES, 0, 0, 0)
    assert found.is_faithful


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", CUT)
def test_a_link_that_is_cut_and_restored_loses_nothing(name: str, cut: dict[str, LinkFidelity | str]) -> None:
    found = _checked(cut[name])
    assert (found.sent, found.lost) == (CUT_MESSAGES, 0)
    assert name != NEVER_REPEATS or (found.duplicated, found.reordered) == (0, 0)


@pytest.mark.soak
@pytest.mark.timeout(300)
def test_every_node_names_its_links_that_are_cut(federations: Federations, cut: dict[str, LinkFidelity | str]) -> None:
    """Asked after the messages, so that the cut here disturbs no other test."""
    openers = {
        node.id for node in federations.network.graph.nodes if federations.network.variables[node.id].get("connector")
    }
    for proxy in federations.proxies:
        proxy.cut()
    _await(lambda: set(federations.unconnected()) == openers, federations)
    for proxy in federations.proxies:
        proxy.restore()
    _await(lambda: not federations.unconnected(), federations)


def _await(is_reached: Callable[[], bool], federations: Federations, timeout_s: float = 60.0) -> None:
    deadline_s = time.monotonic() + timeout_s
    while not is_reached():
        assert time.monotonic() < deadline_s, federations.unconnected()
        time.sleep(0.2)


@pytest.mark.soak
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", FAITHFUL)
def test_a_federation_carries_50_000_messages(name: str, federations: Federations) -> None:
    ways: dict[str, Way] = {name: WAYS[name]}
    found = _checked(
        probe_all(federations.network.graph, federations.running, ways, 50_000, at_once=1, idle_s=30)[name]
    )
    assert (found.lost, found.duplicated, found.reordered) == (0, 0, 0)


@pytest.mark.soak
@pytest.mark.timeout(300)
def test_a_link_that_is_refused_is_named_with_the_words_of_its_node_and_all_is_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("crescendo.topology.local_network.LINKS_TIMEOUT_S", 5.0)
    nodes = [broker(name, program="rabbitmq") for name in ("first", "last")]
    document = {"directed": True, "nodes": nodes, "links": [link("first", "last", addresses=["q"])]}
    network = local_network(topology_of(tmp_path, document))
    with proxied_links(network) as (proxied, proxies):
        for proxy in proxies["first", "last"]:
            proxy.cut()
        with (
            pytest.raises(
                ConfigError, match=r"^node first: it did not connect to last \(.*last log lines: .*econnrefused"
            ),
            running_network(proxied, tmp_path / "nodes"),
        ):
            pytest.fail("it came up")
    assert not list((tmp_path / "nodes").iterdir())
