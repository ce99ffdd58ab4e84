"""Every kind of link between real brokers, all in one network: what it carries, what it changes, what a cut does to it.

The network starts once, and four of its brokers are those of the whole suite; the others start from rendered files.
Every federation carries 2,000 messages here, 50,000 in soak, where links are cut, too. Messages are compared one by one
with what was sent, and python-proton agrees with how they are encoded (test_link_fidelity).
"""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pika
import pytest

from crescendo.model.errors import ConfigError
from crescendo.processes.die_with_parent import die_with_parent
from crescendo.systems.instance import RunningInstance, start
from crescendo.topology.address_ways import ways_of
from crescendo.topology.graph import GraphLink, GraphNode
from crescendo.topology.link_fidelity import BINARY_VALUE, BODY_KINDS, DATA, MAP_VALUE, TEXT_VALUE, LinkFidelity
from crescendo.topology.link_proxy import proxied_links
from crescendo.topology.local_network import USER, await_links, local_network, running_network
from crescendo.topology.local_node import LocalNode
from crescendo.topology.rendering.artemis import via_of
from crescendo.topology.route_probe import kinds_carried
from crescendo.topology.topology_file import load_topology
from federations import EVERY_LINK, TOPOLOGIES, Federations, Scissors, joined_to, probe_all, running_federations
from networks import broker, link, router, topology_of

MESSAGES = 2000
CUT_MESSAGES, CUT_AFTER, CUT_S = 450, 150, 1.0

WAYS = ways_of(load_topology(EVERY_LINK).graph)

FROM_1_0 = ("artemis-to-rabbitmq", "activemq-to-rabbitmq")
TO_1_0 = ("rabbitmq-to-artemis", "rabbitmq-to-activemq")
FAITHFUL = tuple(name for name in WAYS if name not in FROM_1_0 + TO_1_0)
"""Links that change nothing. The others are RabbitMQ 3.10's shovels from and to AMQP 1.0."""

ALONE = {f"alone-{name}": (name, name) for name in ("artemis1", "activemq1", "rabbitmq1", "qpid1", "relay1")}
SHOVELLED = (DATA, TEXT_VALUE, BINARY_VALUE)
"""What a shovel from AMQP 1.0 survives; a map ends it."""

SHOVEL_PREFETCH = 1000  # unconfirmed messages, by default
KINDS = dict.fromkeys(FROM_1_0, SHOVELLED) | dict.fromkeys(TO_1_0, (DATA,))
APPLICATION = {"text", "whole", "long", "flag", "real"}

FAN_OUT = ("artemis-amqp-bridge", "artemis-to-activemq", "artemis-to-rabbitmq")
"""As in fan-out.yml: one broker in front of three, of different vendors."""

TIERS = ("artemis-federation", "rabbitmq-to-artemis", "qpid-to-artemis")
"""As in two-tier.yml: brokers at which senders connect, and one behind all of them."""

NEVER_REPEATS = "artemis-bridge"
"""It detects duplicates; the others may send again what was not acknowledged when they were cut."""

Probed = dict[str, LinkFidelity | str]


@pytest.fixture(scope="module")
def federations(
    reachable_dir: Path,
    artemis: RunningInstance,
    activemq: RunningInstance,
    rabbitmq: RunningInstance,
    qpid_broker_j: RunningInstance,
) -> Iterator[Federations]:
    shared = {"artemis2": artemis, "activemq2": activemq, "rabbitmq2": rabbitmq, "qpid1": qpid_broker_j}
    with running_federations(reachable_dir, shared) as running:
        yield running


@pytest.fixture(scope="module")
def carried(federations: Federations) -> Probed:
    """2,000 messages over every federation and through every broker alone.

    First those of one broker in front of others and of one behind others, at the same time. Not all at once: on two
    busy cores a shovel to ActiveMQ then repeated 999 of its messages.
    """
    graph, running = federations.network.graph, federations.running
    ways = {name: WAYS[name] for name in FAN_OUT + TIERS} | WAYS | ALONE
    with pika.BlockingConnection(pika.URLParameters(running["rabbitmq1"].endpoints["amqp"])) as connection:
        connection.channel().queue_declare("alone-rabbitmq1", durable=True)
    return probe_all(graph, running, ways, MESSAGES, at_once=len(FAN_OUT + TIERS), idle_s=20, kinds=KINDS)


@pytest.fixture(scope="module")
def cut(federations: Federations, carried: Probed) -> Iterator[Probed]:
    """Some messages over every federation, whose links are cut while they cross."""
    scissors = Scissors(federations.proxies, len(WAYS), CUT_S)
    try:
        yield probe_all(
            federations.network.graph,
            federations.running,
            WAYS,
            CUT_MESSAGES,
            at_once=len(WAYS),
            kinds=KINDS,
            idle_s=30,
            linger_s=2,
            on_sent=scissors.on_sent(CUT_AFTER),
        )
    finally:
        scissors.join()


def _checked(found: LinkFidelity | str) -> LinkFidelity:
    assert isinstance(found, LinkFidelity), found
    return found


# -- what is carried ---------------------------------------------------------------------------------------------------


@pytest.mark.timeout(600)
def test_no_manifest_has_the_password_of_the_network(federations: Federations) -> None:
    for name, instance in federations.running.items():
        password = urlsplit(instance.endpoints["amqp"]).password
        assert (password is None) is name.startswith("relay")
        assert password is None or password not in str(instance.facts)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", FAITHFUL)
def test_a_federation_carries_every_message_once_in_order_and_unchanged(name: str, carried: Probed) -> None:
    found = _checked(carried[name])
    assert (found.sent, found.lost, found.duplicated, found.reordered) == (MESSAGES, 0, 0, 0)
    assert found.is_faithful, found


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", FROM_1_0)
def test_a_shovel_from_amqp_1_0_carries_data_alone(name: str, carried: Probed) -> None:
    """RabbitMQ 3.10: no message is lost, but application properties are, and values arrive as raw sections."""
    found = _checked(carried[name])
    assert (found.sent, found.lost, found.duplicated, found.reordered) == (MESSAGES, 0, 0, 0)
    data, text, binary = found.bodies
    assert data.equal == data.messages
    assert [set(body.arrived_as) for body in (text, binary)] == [{DATA}, {DATA}]
    assert text.equal == binary.equal == 0
    assert set(found.dropped) >= APPLICATION


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", TO_1_0)
def test_a_shovel_to_amqp_1_0_breaks_application_properties(name: str, carried: Probed) -> None:
    """RabbitMQ 3.10 writes those of AMQP 1.0 clients as text that is none; the body is whole.

    On busy cores a shovel to ActiveMQ sometimes begins again, and repeats what was not confirmed.
    """
    found = _checked(carried[name])
    assert (found.sent, found.lost, found.reordered) == (MESSAGES, 0, 0)
    assert found.duplicated < SHOVEL_PREFETCH
    assert found.bodies[0].equal == MESSAGES
    assert found.invalid == {"application properties": MESSAGES}


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", ALONE)
def test_single_brokers_change_nothing(name: str, carried: Probed) -> None:
    found = _checked(carried[name])
    assert found.sent == MESSAGES
    assert found.is_faithful, found


Joint = tuple[str, str, str]


def _joint(each: GraphLink, nodes: dict[str, GraphNode]) -> Joint:
    """Which programs a link joins, and how."""
    source, target = nodes[each.source], nodes[each.target]
    via = each.via
    if "rabbitmq" in {source.program, target.program}:
        via = via or "shovel"
    if "artemis" in {source.program, target.program}:
        via = via or via_of({"direction": "out"}, target.program)
    return source.program or "relay", via or "", target.program or "relay"


def test_the_links_of_all_experiments_are_among_those_that_are_tested() -> None:
    joints: dict[str, set[Joint]] = {}
    for path in TOPOLOGIES.glob("*.yml"):
        graph = load_topology(path).graph
        joints[path.name] = {_joint(each, graph.by_id()) for each in graph.links}
    tested = joints.pop(EVERY_LINK.name)
    assert len(joints) > 20
    assert {name: missing for name, found in joints.items() if (missing := found - tested)} == {}


def test_one_broker_in_front_of_others_and_one_behind_others_carry_at_the_same_time() -> None:
    """The ways that `carried` begins with, all six at once, are networks of this shape."""
    assert len({WAYS[name][0] for name in FAN_OUT}) == len({WAYS[name][1] for name in TIERS}) == 1
    every_link, fan_out = load_topology(EVERY_LINK).graph, load_topology(TOPOLOGIES / "fan-out.yml").graph
    links = [each for each in every_link.links if set(each.addresses) <= set(FAN_OUT)]
    assert {_joint(each, every_link.by_id()) for each in links} == {
        _joint(each, fan_out.by_id()) for each in fan_out.links
    }


def test_a_probe_sends_nothing_that_ends_a_link() -> None:
    """As test_a_map_ends_a_shovel_from_amqp_1_0 sees it; the load of the run would be lost behind the message."""
    fan_out = load_topology(TOPOLOGIES / "fan-out.yml").graph
    assert {name: kinds_carried(fan_out, name) for name in ("perf1", "perf2", "perf3")} == {
        "perf1": BODY_KINDS,
        "perf2": BODY_KINDS,
        "perf3": SHOVELLED,
    }
    every_link = load_topology(EVERY_LINK).graph
    assert {name for name in WAYS if kinds_carried(every_link, name) != BODY_KINDS} == set(FROM_1_0)


# -- links that are cut ------------------------------------------------------------------------------------------------


@pytest.mark.soak
@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", WAYS)
def test_a_link_that_is_cut_and_restored_loses_nothing(name: str, cut: Probed) -> None:
    found = _checked(cut[name])
    assert (found.sent, found.lost) == (CUT_MESSAGES, 0), found
    assert name != NEVER_REPEATS or (found.duplicated, found.reordered) == (0, 0)


@pytest.mark.soak
@pytest.mark.timeout(300)
def test_every_node_names_its_links_that_are_cut(federations: Federations, cut: Probed) -> None:
    """Asked after the messages, so that the cut here disturbs no other test."""
    for proxy in federations.proxies:
        proxy.cut()
    _await(lambda: set(federations.unconnected()) == federations.openers, federations)
    _await(lambda: all("(Connection refused)" in each for each in federations.unconnected()["relay1"]), federations)
    for proxy in federations.proxies:
        proxy.restore()
    _await(lambda: not federations.unconnected(), federations)


def _await(is_reached: Callable[[], bool], federations: Federations, timeout_s: float = 60.0) -> None:
    deadline_s = time.monotonic() + timeout_s
    while not is_reached():
        assert time.monotonic() < deadline_s, federations.unconnected()
        time.sleep(0.2)


@pytest.mark.timeout(180)
@pytest.mark.shares("artemis", "activemq", "rabbitmq")
@pytest.mark.parametrize(
    ("opener", "acceptor", "via", "words"),
    [
        ("relay", "artemis", "autoLink", r"last \(the system rejects .*\) within"),
        pytest.param("artemis", "rabbitmq", "amqp-bridge", "authentication failure", marks=pytest.mark.soak),
        pytest.param("artemis", "artemis", "bridge", "nable to", marks=pytest.mark.soak),
        pytest.param("activemq", "activemq", None, "password is invalid", marks=pytest.mark.soak),
        pytest.param("rabbitmq", "rabbitmq", "federation", "ACCESS_REFUSED", marks=pytest.mark.soak),
    ],
)
def test_a_link_that_is_refused_is_named_with_the_words_of_those_who_refuse(
    opener: str,
    acceptor: str,
    via: str | None,
    words: str,
    reachable_dir: Path,
    tmp_path: Path,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The opener has another password than the broker that it is to join."""
    monkeypatch.setattr("crescendo.topology.local_network.LINKS_TIMEOUT_S", 2.0 if opener == "relay" else 6.0)
    shared: RunningInstance = request.getfixturevalue(acceptor)
    end = router("first", program="relay") if opener == "relay" else broker("first", program=opener)
    ends = ("last", "first") if via == "federation" else ("first", "last")  # who wants the messages opens it
    joined = link(*ends, addresses=["orders"]) | ({} if via is None else {"via": via})
    nodes = [end, broker("last", program=acceptor)]
    plan = local_network(topology_of(tmp_path, {"directed": True, "nodes": nodes, "links": [joined]}))
    network = joined_to(plan, {"last": shared})
    node = network.graph.by_id()["first"]
    kind = LocalNode(network, node, USER, "not-the-password")
    first = start(
        kind,
        kind.own_settings(),
        directory=reachable_dir / f"refused-{opener}-{acceptor}",
        ports=kind.wanted_ports,
        on_fork=die_with_parent(),
    )
    try:
        with pytest.raises(ConfigError, match=rf"^node first: it did not connect to .*{words}"):
            await_links(network, node, first)
    finally:
        first.stop()


# -- long versions -----------------------------------------------------------------------------------------------------


@pytest.mark.soak
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", FAITHFUL)
def test_a_federation_carries_50_000_messages(name: str, federations: Federations) -> None:
    found = _checked(
        probe_all(federations.network.graph, federations.running, {name: WAYS[name]}, 50_000, at_once=1, idle_s=30)[
            name
        ]
    )
    assert (found.lost, found.duplicated, found.reordered) == (0, 0, 0)


@pytest.mark.soak
@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", FROM_1_0)
def test_a_map_ends_a_shovel_from_amqp_1_0(name: str, federations: Federations) -> None:
    """The message that it cannot read stays at the head of the queue, so these are the last tests of this network."""
    graph, ways, kinds = federations.network.graph, {name: WAYS[name]}, {name: (MAP_VALUE,)}
    found = _checked(probe_all(graph, federations.running, ways, 3, at_once=1, idle_s=10, kinds=kinds)[name])
    assert found.lost == 3
    _await(lambda: "function_clause" in str(federations.unconnected().get("rabbitmq1")), federations)


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
