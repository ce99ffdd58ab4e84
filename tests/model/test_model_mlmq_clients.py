"""Are the clients of an experiment file parsed correctly, and is every mistake explained with its cure?"""

from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from crescendo.model.errors import ConfigError
from crescendo.model.experiment import Experiment
from crescendo.model.experiment_file import experiment_from, to_document
from crescendo.model.mlmq_clients import ClientKind, Clients

BASE = """
name: mix
system: {kind: mlmq, settings: {brokers: 2}}
clients:
  - {name: relay, kind: one-way, count: 30}
  - {name: pairs, kind: paired, count: 16}
  - {name: readers, kind: consumer, count: 10}
  - {name: writers, kind: producer, count: 5}
"""


def read(text: str = "", *overrides: str) -> Experiment:
    document: dict[str, Any] = {**yaml.safe_load(BASE), **(yaml.safe_load(text) or {})}
    return experiment_from(document, overrides)


def test_clients_need_no_workload_and_are_judged_by_conservation() -> None:
    experiment = read()
    assert experiment.workload == []
    assert experiment.effective_checks == {"conservation": "== 0", "lost": "== 0", "duplicated": "== 0"}
    assert experiment_from(to_document(experiment)) == experiment


def test_clients_may_run_next_to_a_workload() -> None:
    experiment = read("workload: {protocol: mlmq, rate: 10}")
    assert len(experiment.workload) == 1
    assert len(experiment.clients) == 4


def test_further_checks_do_not_replace_conservation() -> None:
    checks = read("checks: {transfer_p99: '<= 1s', lost_acknowledged: 0}").effective_checks
    assert set(checks) == {"conservation", "lost_acknowledged", "duplicated", "transfer_p99"}


def test_set_reaches_all_groups_or_one() -> None:
    experiment = read("", "clients.wait=5ms", "clients.relay.count=4")
    assert [group.wait for group in experiment.clients] == [5_000_000] * 4
    assert [group.count for group in experiment.clients] == [4, 16, 10, 5]


MISTAKES = [
    (
        "clients: {name: a, kind: onewy}",
        "clients",
        "did you mean 'one-way'? known: one-way, paired, producer",
    ),
    ("clients: {name: a, kind: one-way, count: 1}", "clients", "at least 2"),
    ("clients: {name: a, kind: paired, count: 3}", "clients", "even"),
    ("clients: {name: a, kind: paired, count: 4, group_size: 1, group_delay: 1s}", "clients", "even"),
    ("clients: {name: a, kind: one-way, count: 4, group_size: 2}", "clients", "group_delay"),
    ("clients: {name: a, kind: one-way, count: 4, size: 47}", "clients", "48 to 2000"),
    ("clients: {name: a, kind: one-way, count: 4, size: 2001}", "clients", "48 to 2000"),
    ("clients: {name: a, kind: one-way, count: 4, priority: 11}", "clients.priority", "<= 10"),
    ("clients: {name: a, kind: one-way, count: 4, poll: 61s}", "clients", "at most 1m"),
    ("clients: {name: a, kind: one-way, count: 4, messages: 4}", "clients", "simple-send"),
    ("clients: {name: a, kind: simple-send}", "clients", "messages"),
    ("clients: {name: a, kind: producer}", "no consumer on public", "kind consumer"),
    ("clients: {name: a, kind: consumer, queue: x}", "no producer on x", "kind producer"),
    ("clients: {name: a, kind: one-way, coun: 2}", "clients", "did you mean 'count'?"),
    ("clients: [{name: a, kind: one-way, count: 2}, {name: a, kind: one-way, count: 2}]", "'a'", "own name"),
    ("system: {kind: artemis}", "clients need MLMQ", "kind: mlmq"),
    ("system: {url: 'amqp://127.0.0.1'}", "clients need MLMQ", "mlmq://"),
    ("phases: {measure: 1000 messages}", "phases.measure", "a duration"),
    ("phases: {drain: 1s}", "phases.drain", "at least 2s"),
    ("peers: {clients: 16}", "clients.relay", "peers.clients smaller"),
    ("stop_when: {response_max: 1s}", "stop_when", "remove it"),
    ("profile: {kind: poisson}", "profile", "remove it"),
    ("clients: []", "workload", "unless there are clients"),
]


@pytest.mark.parametrize(("text", "place", "cure"), MISTAKES, ids=[text for text, _, _ in MISTAKES])
def test_every_mistake_names_its_path_and_its_cure(text: str, place: str, cure: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read(text)
    assert place in str(caught.value)
    assert cure in str(caught.value)
    assert "\n" not in str(caught.value)


def test_conservation_can_only_be_checked_with_clients() -> None:
    with pytest.raises(ConfigError, match="clients"):
        experiment_from({"name": "x", "workload": {}, "checks": {"conservation": 0}})


@given(st.sampled_from(list(ClientKind)), st.integers(1, 200), st.integers(1, 12))
def test_processes_share_all_clients_and_split_no_pair(kind: ClientKind, half: int, processes: int) -> None:
    group = Clients("a", kind, count=2 * half, messages=1 if kind is ClientKind.SIMPLE_SEND else None)
    shares = [list(group.share(process, processes)) for process in range(processes)]
    assert [index for share in shares for index in share] == list(range(2 * half))
    assert max(map(len, shares)) - min(map(len, shares)) <= (2 if kind is ClientKind.PAIRED else 1)
    if kind is ClientKind.PAIRED:
        assert all(len(share) % 2 == 0 and (not share or share[0] % 2 == 0) for share in shares)


def test_a_ramp_adds_a_group_after_each_delay() -> None:
    group = read("clients: {name: a, kind: one-way, count: 6, group_size: 2, group_delay: 2m}").clients[0]
    assert [group.begins_ns(index) // 10**9 for index in range(6)] == [0, 0, 120, 120, 240, 240]
