"""Experiments whose system is a network: every node comes up, is inspected, loses nothing, and is gone afterwards."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pytest
import yaml
from pyspark.sql import SparkSession

from broken_nodes import mounts_below
from crescendo.faults.loop_disk import why_no_loop_disk
from crescendo.model.errors import ConfigError
from crescendo.model.experiment_file import load_experiment
from crescendo.model.verdict import Outcome
from crescendo.report.page import render_report
from crescendo.run.execute import execute
from crescendo.run.observer import RunObserver
from whole_runs import Launcher, judged

FEDERATIONS = Path(__file__).parents[2] / "experiments/federation"
NO_DISK = why_no_loop_disk()
SHORT = {"warmup": "1s", "measure": "3s", "drain": "10s"}
LINE = {"graph_type": "line", "routers": 3, "router_program": "relay"}
REDUNDANT = {"graph_type": "redundant", "routers": 4, "router_program": "relay"}


@pytest.fixture
def network_experiment(tmp_path: Path, experiment: Callable[..., Path]) -> Callable[..., Path]:
    """Write an experiment and, beside it, its topology."""

    def write(topology: dict[str, Any], send_to: str, receive_from: str, **more: Any) -> Path:
        (tmp_path / "network.yml").write_text(yaml.safe_dump(topology))
        places = {"send_to": send_to, "receive_from": receive_from}
        return experiment(
            topology="network.yml", workload={"rate": 300, **places, **more}, phases=SHORT, checks={"lost": 0}
        )

    return write


def _assert_steps_add_up(run_dir: Path, nodes: list[str]) -> None:
    """Every node sampled the same messages in its order, and the mean of the steps is that of those messages."""
    sampled = "SELECT node, count(*), min(seq % 100), max(seq % 100) FROM {} GROUP BY node ORDER BY min(arrived_ns)"
    found = ask(run_dir, "hops", sampled)
    assert [row[0] for row in found] == nodes
    assert {row[1:] for row in found} == {(found[0][1], 0, 0)}
    steps = ask(run_dir, "tables/hops", "SELECT sum(mean_ns), min(messages), max(route) FROM {}")[0]
    assert steps[2] == " → ".join(nodes)
    t0_ns = ask(run_dir, "events", "SELECT detail->>'t0_ns' FROM {} WHERE kind = 'start'")[0][0]
    start_ns = int(t0_ns) + 10**9  # after the warm-up
    query = "SELECT avg(received_ns - sent_ns), count(*) FROM {} WHERE seq % 100 = 0 AND intended_ns >= "
    whole = ask(run_dir, "received", f"{query}{start_ns} AND intended_ns < {start_ns + 3 * 10**9}")[0]
    assert (steps[0], steps[1]) == (pytest.approx(whole[0]), whole[1])


def ask(run_dir: Path, table: str, query: str) -> list[tuple[Any, ...]]:
    """Query the raw parts with DuckDB, independently of our own readers."""
    return duckdb.sql(query.format(f"read_parquet('{run_dir / table}/*.parquet')")).fetchall()


@pytest.mark.parametrize(
    ("topology", "first", "last", "used", "spared"),
    [
        (LINE, "router1", "router3", ["router2"], []),
        (REDUNDANT, "router1", "router4", ["router2"], ["router3"]),
    ],
    ids=["line", "redundant"],
)
def test_a_network_of_relays_loses_nothing_and_the_report_draws_it(
    topology: dict[str, Any],
    first: str,
    last: str,
    used: list[str],
    spared: list[str],
    network_experiment: Callable[..., Path],
    launch: Launcher,
    spark: SparkSession,
) -> None:
    session = launch.without_analysis(network_experiment(topology, first, last))
    ended = session.finish()
    assert (ended.returncode, ended.stdout) == (0, "sealed\n"), ended.stderr
    summary, run_dir = judged(session, spark), session.run_dir()
    assert summary.verdict.outcome is Outcome.PASS
    total = summary.total
    rows = [ask(run_dir, table, "SELECT count(*) FROM {}")[0][0] for table in ("sent", "received")]
    assert rows == [total.sent, total.delivered] == [total.sent] * 2
    assert total.sent >= 2 * 300 * 4
    assert (total.lost, total.duplicated, total.reordered) == (0, 0, 0)
    facts = session.manifest()["system"]
    assert {node["id"] for node in facts["nodes"]} == {first, last, *used, *spared}
    assert not (run_dir / "system").exists()
    transit = "SELECT source, max(value) FROM {} WHERE metric = 'deliveriesTransit' GROUP BY source"
    carried = {source.removeprefix("inspector-"): most for source, most in ask(run_dir, "readings", transit)}
    assert all(carried[name] > total.sent / 2 for name in used)
    assert all(carried[name] == 0 for name in (first, last, *spared))
    _assert_steps_add_up(run_dir, [first, *used, last])
    page = render_report(run_dir)
    assert "Hop by hop" in page
    assert "A relay is a stand-in for a router" in page
    assert "with relays as stand-ins for routers" in page
    assert re.search(r'class="link-text"[^>]*>[\d,]+/s →<', page)
    assert re.search(r"sender to receiver p50 [\d.,]+ ", page)
    assert re.search(r'class="link-text"[^>]*>mean [\d.,]+ ', page)  # how long sampled messages took over a link


def test_a_broker_between_two_relays_loses_nothing_and_the_report_says_what_the_way_does(
    network_experiment: Callable[..., Path], launch: Launcher, spark: SparkSession
) -> None:
    topology = {"graph_type": "line-mixed", "routers": 2, "brokers": 1, "router_program": "relay"}
    path = network_experiment(topology, "router1", "router2", address="queue://broker1", rate=50)
    freeze = {"at": "measure + 1s", "on": "broker1", "do": "disk", "for": "300ms", "with": {"state": "frozen"}}
    more = {"probe_links": 10, "faults": [] if NO_DISK else [freeze]}
    path.write_text(f"{path.read_text()}\n{yaml.safe_dump(more)}")
    session = launch.without_analysis(path)
    ended = session.finish()
    assert (ended.returncode, ended.stdout) == (0, "sealed\n"), ended.stderr
    summary, run_dir = judged(session, spark), session.run_dir()
    assert summary.verdict.outcome is Outcome.PASS
    total = summary.total
    rows = [ask(run_dir, table, "SELECT count(*) FROM {}")[0][0] for table in ("sent", "received")]
    assert rows == [total.sent] * 2
    assert total.sent >= 2 * 50 * 4
    assert (total.lost, total.duplicated, total.reordered) == (0, 0, 0)
    if not NO_DISK:
        means = "SELECT detail->>'means' FROM {} WHERE kind = 'fault'"
        assert ask(run_dir, "events", means) == [("fsfreeze",)], "the broker has a disk of its own"
        assert mounts_below(run_dir) == []
    added = "SELECT max(value) FROM {} WHERE metric = 'MessagesAdded' AND entity LIKE 'queue/%broker1%'"
    assert ask(run_dir, "readings", added)[0][0] > total.sent / 2  # they were in the broker's queue
    page = " ".join(re.sub(r"<[^>]+>", " ", render_report(run_dir)).split())
    assert re.search(r"broker1 artemis [\d.]+ \S+ \S+ \S+ \d+ ", page), page  # its queue depth
    assert re.search(r"Links: messages compared before the load .*router1 → router2 \(broker1\) 10 0 0 0 ", page), page
    assert "Links: bodies" in page
    assert "Links: properties" in page


@pytest.mark.soak
@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", ["fan-out", "two-tier"])
def test_several_brokers_around_one_lose_nothing(
    name: str, tmp_path: Path, launch: Launcher, spark: SparkSession
) -> None:
    """The experiment as it is, but shorter: 2,100 messages to or from each broker after the warm-up."""
    document = yaml.safe_load((FEDERATIONS / f"{name}.yml").read_text())
    document |= {
        "topology": str(FEDERATIONS / document["topology"]),
        "phases": {"warmup": "2s", "measure": "7s", "drain": "20s"},
    }
    path = tmp_path / f"{name}.yml"
    path.write_text(yaml.safe_dump(document))
    session = launch.without_analysis(path)
    ended = session.finish()
    assert (ended.returncode, ended.stdout) == (0, "sealed\n"), ended.stderr
    summary, run_dir = judged(session, spark), session.run_dir()
    assert summary.verdict.outcome is Outcome.PASS, summary.verdict
    total = summary.total
    assert (total.lost, total.duplicated, total.reordered) == (0, 0, 0)
    counted = {
        table: ask(
            run_dir, table, "SELECT sender, count(*), count(DISTINCT seq) FROM {} GROUP BY sender ORDER BY sender"
        )
        for table in ("sent", "received")
    }
    assert counted["sent"] == counted["received"]
    assert [row[1] for row in counted["sent"]] == [9 * 300] * len(document["workload"])


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"send_to": "router9"}, r"workload\.main\.send_to: .*network\.yml has no node router9; "),
        ({"protocol": "mqtt"}, r"workload\.main\.protocol: the nodes of a network speak amqp10 only"),
    ],
)
def test_a_mistake_is_found_before_anything_starts(
    changes: dict[str, Any], sentence: str, network_experiment: Callable[..., Path], tmp_path: Path
) -> None:
    path = network_experiment(LINE, **{"send_to": "router1", "receive_from": "router3", **changes})
    with pytest.raises(ConfigError, match=sentence):
        execute(load_experiment(path), out=tmp_path / "runs", command=[], observer=RunObserver())
    assert not (tmp_path / "runs").exists()


def test_a_group_says_where_it_sends_and_receives(tmp_path: Path) -> None:
    path = tmp_path / "trial.yml"
    path.write_text("topology: network.yml\nworkload: {receive_from: router3}\n")
    with pytest.raises(ConfigError, match=r"trial\.yml: .*name the node of the network that it uses: send_to: NODE"):
        load_experiment(path)
