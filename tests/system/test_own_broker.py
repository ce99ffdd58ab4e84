"""What a first-time user with a broker of his own runs into: is a healthy system never accused?"""

import json
import urllib.request
import uuid
from base64 import b64encode
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest
from pyspark.sql import SparkSession

import crescendo
from crescendo.cli.run_view import ask_before_purging
from crescendo.model.errors import ConfigError
from crescendo.model.experiment_file import experiment_from
from crescendo.model.leftovers import leftovers_sentence
from crescendo.model.verdict import Outcome
from crescendo.record.summary import Summary
from crescendo.systems.instance import RunningInstance
from delay_proxy import DelayProxy

SHORT = {"warmup": "0s", "measure": "1s", "drain": "2s"}
LEAVING = {"warmup": "0s", "measure": "1s", "drain": "500ms", "drain_limit": "500ms"}
EMPTY = "destination was empty"
COPIES = "every receiver of a topic got its own copy"

Measure = Callable[..., Summary]


@pytest.fixture
def measure(tmp_path: Path, spark: SparkSession) -> Measure:
    """Run a small experiment on a system that is running already, and judge it."""

    def run(url: str, name: str = "trial", **keys: Any) -> Summary:
        document = {"name": name, "system": {"url": url}, "phases": SHORT, **keys}
        result = crescendo.run(experiment_from(document), out=tmp_path / "runs", report=False, durable=False)
        assert result.summary is not None
        return result.summary

    return run


def _validity(summary: Summary, name: str) -> Any:
    return next(row for row in summary.validity if row.name == name)


def _queues(rabbitmq: RunningInstance) -> set[str]:
    """The queues that RabbitMQ itself lists."""
    parts = urlsplit(rabbitmq.endpoints["management"])
    request = urllib.request.Request(f"http://{parts.hostname}:{parts.port}/api/queues")
    secret = b64encode(f"{unquote(parts.username or '')}:{unquote(parts.password or '')}".encode()).decode()
    request.add_header("Authorization", f"Basic {secret}")
    with urllib.request.urlopen(request, timeout=10) as answer:  # noqa: S310
        return {queue["name"] for queue in json.load(answer)}


def test_what_a_run_leaves_in_a_queue_is_neither_lost_nor_held_against_the_next(
    rabbitmq: RunningInstance, measure: Measure
) -> None:
    url = rabbitmq.endpoints["amqp091"]
    load = {"address": f"queue://left-{uuid.uuid4().hex[:8]}", "protocol": "amqp091", "rate": 800}
    slow = measure(url, "slow", workload={**load, "receive_rate": 100}, phases=LEAVING, checks={"lost": 0})
    assert (slow.total.lost, slow.verdict.outcome) == (0, Outcome.INVALID)
    assert slow.total.undelivered > 400
    assert any("undelivered, not lost" in remark for remark in slow.remarks)

    after = measure(url, "after", workload={**load, "receive_rate": 100}, phases=LEAVING, checks={"lost": 0})
    assert after.verdict.outcome is Outcome.INVALID
    row = _validity(after, EMPTY)
    assert not row.holds
    assert f"messages of run {slow.run} were in the way of {load['address']}" in row.detail
    assert "purge: true" in row.detail
    assert after.total.lost == 0

    purged = measure(url, "purged", workload={**load, "purge": True}, checks={"lost": 0, "stray": 0})
    assert purged.verdict.outcome is Outcome.PASS
    assert _validity(purged, EMPTY).holds
    assert "messages were purged from" in _validity(purged, EMPTY).detail


def test_messages_that_the_system_still_counts_are_not_lost(artemis: RunningInstance, measure: Measure) -> None:
    """A receiver that is busy with its first message when the drain ends: nothing arrives, and nothing is lost."""
    summary = measure(
        artemis.endpoints["amqp"],
        workload={"address": "queue://counted-{run}?prefetch=1", "rate": 20, "delay": "8s"},
        phases={"warmup": "0s", "measure": "1s", "drain": "2s", "drain_limit": "2s"},
        inspect=[{"kind": "artemis", "url": artemis.endpoints["management"], "every": "200ms"}],
        checks={"lost": 0},
    )
    assert (summary.total.lost, summary.verdict.outcome) == (0, Outcome.INVALID)
    assert summary.total.undelivered == summary.total.sent - summary.total.delivered > 0
    held = f"{summary.total.undelivered} messages are still in queue://counted-"
    assert any(held in remark for remark in summary.remarks), summary.remarks


def test_receivers_of_a_topic_that_share_a_queue_are_recognised(artemis: RunningInstance, measure: Measure) -> None:
    """An address that an AMQP run made a queue stays one for MQTT, so both subscribers take from it."""
    name = f"shared-{uuid.uuid4().hex[:8]}"
    url = artemis.endpoints["amqp"]
    held = measure(url, workload={"address": f"queue://{name}", "rate": 300, "receive_rate": 50}, phases=LEAVING)
    assert held.total.undelivered
    mqtt = {"address": f"topic://{name}", "protocol": "mqtt", "receivers": 2, "rate": 200}
    summary = measure(artemis.endpoints["mqtt"], workload=mqtt, checks={"lost": 0})
    assert summary.verdict.outcome is Outcome.INVALID
    row = _validity(summary, COPIES)
    assert not row.holds
    assert f"the receivers of topic://{name} share its messages" in row.detail


@pytest.mark.parametrize("processes", [1, 2])
def test_subscribers_of_one_share_do_not_race(processes: int, artemis: RunningInstance, tmp_path: Path) -> None:
    """In one process, the others wait until the first has created what they share; processes try again."""
    port = artemis.facts["ports"]["mqtt"]
    with DelayProxy(port, 0.3, watched=b"$share/") as proxy:
        document = {
            "name": "share",
            "system": {"url": artemis.endpoints["mqtt"].replace(f":{port}", f":{proxy.port}")},
            "workload": {"address": "queue://share-{run}", "protocol": "mqtt", "receivers": 8, "rate": 50},
            "phases": {"warmup": "0s", "measure": "200ms", "drain": "2s"},
            "peers": {"receivers": processes},
        }
        result = crescendo.run(experiment_from(document), out=tmp_path / "runs", analyze=False, durable=False)
    assert result.state == "sealed"
    asked_s = sorted(proxy.seen_s)
    assert len(asked_s) >= 8
    assert asked_s[processes] - asked_s[0] >= 0.3, "the answer to the first takes so long"


def test_messages_on_their_way_when_the_window_ends_are_not_held_against_the_broker(
    mosquitto: RunningInstance, measure: Measure
) -> None:
    """Everything arrives 60 ms after it was due: of the last 60 ms of a second, all but nothing arrives in time."""
    port = mosquitto.facts["ports"]["mqtt"]
    with DelayProxy(port, 0.06) as proxy:
        url = mosquitto.endpoints["mqtt"].replace(f":{port}", f":{proxy.port}")
        # At most once, because a sender that waits for acknowledgements, 20 at a time, would be late itself.
        load = {"address": "topic://edge-{run}", "protocol": "mqtt", "rate": 500, "settle": "at-most-once"}
        summary = measure(url, workload=load, checks={"lost": 0, "rate": ">= 0.98 of offered"})
    assert summary.rate.sustained < 0.95 * summary.rate.offered
    (rate,) = (check for check in summary.verdict.checks if check.metric == "rate")
    assert rate.outcome is not Outcome.FAIL, "a busy machine may leave it open"
    if rate.outcome is Outcome.PASS:
        assert rate.value is not None
        assert rate.value >= 0.98 * summary.rate.offered
        assert any("that were due in the measure phase arrived within 100 ms" in remark for remark in summary.remarks)


def test_a_temporary_queue_is_gone_after_the_run(rabbitmq: RunningInstance, tmp_path: Path) -> None:
    def load(address: str) -> dict[str, Any]:
        return {
            "name": "temporary",
            "system": {"url": rabbitmq.endpoints["amqp091"]},
            "workload": {"address": address, "protocol": "amqp091", "rate": 100, "receivers": 2},
            "phases": {"warmup": "0s", "measure": "300ms", "drain": "2s"},
        }

    tags = []
    for address in ("queue://kept-{run}", "queue://gone-{run}?temporary=yes"):
        experiment = experiment_from(load(address))
        result = crescendo.run(experiment, out=tmp_path / "runs", analyze=False, durable=False)
        tags.append(f"{result.recording.manifest.tag:08x}")
        said = leftovers_sentence(experiment.for_run(tags[-1]), 0)
        assert (f"queue://kept-{tags[-1]}" in said) == ("kept" in address)
        assert "***" in said or not said
    names = _queues(rabbitmq)
    assert f"kept-{tags[0]}" in names
    assert f"gone-{tags[1]}" not in names


def test_a_limit_on_a_group_stops_the_run_that_this_group_delays(tmp_path: Path, spark: SparkSession) -> None:
    slow = {"name": "slow", "address": "queue://slow", "rate": 50, "delay": "100ms"}
    document = {
        "name": "limited",
        "workload": [slow, {"name": "quick", "address": "queue://quick", "rate": 50}],
        "phases": {"warmup": "0s", "measure": "60s", "drain": "1s", "drain_limit": "1s"},
        "stop_when": {"quick.response_max": "60s", "slow.response_max": "500ms"},
        "checks": {"quick.lost": 0},
    }
    result = crescendo.run(experiment_from(document), out=tmp_path / "runs", report=False, durable=False)
    exceeded = result.recording.manifest.exceeded
    assert exceeded is not None
    assert exceeded.metric == "slow.response_max"
    assert exceeded.value_ns > 500_000_000
    assert result.verdict is not None
    (check,) = (check for check in result.verdict.checks if check.metric == "slow.response_max")
    assert check.outcome is not Outcome.PASS


def test_purging_is_asked_on_a_terminal(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    document = {"name": "p", "system": {"url": "amqp://h"}, "workload": {"address": "queue://max", "purge": True}}
    experiment = experiment_from(document)
    ask_before_purging(experiment)  # no terminal: what the file says is done
    for stream in ("stdin", "stderr"):
        monkeypatch.setattr(f"sys.{stream}.isatty", lambda: True)
    for answer, refused in (("n\n", True), ("\n", True), ("y\n", False)):
        monkeypatch.setattr("sys.stdin.readline", lambda answer=answer: answer)
        if refused:
            with pytest.raises(ConfigError, match="nothing was purged"):
                ask_before_purging(experiment)
        else:
            ask_before_purging(experiment)
    assert "deletes every message in queue://max" in capsys.readouterr().err
    own = experiment_from({"name": "p", "workload": {"purge": True}})
    monkeypatch.setattr("sys.stdin.readline", lambda: pytest.fail("asked about a system of our own"))
    ask_before_purging(own)
