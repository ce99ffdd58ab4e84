"""Every group, destination and protocol has its own results, and checks of them are judged on their own evidence."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyspark.sql import SparkSession

from crescendo.model.errors import ConfigError
from crescendo.model.experiment_file import experiment_from
from crescendo.model.metrics import METRICS, format_value, metric_of, split_metric
from crescendo.pipeline.compare.compare import compare
from crescendo.pipeline.compare.runs import run_group
from crescendo.pipeline.job import analyze
from crescendo.record.summary import SliceResult, Summary
from tiny_recordings import ACCOUNTED, END_NS, MEASURE_NS, MS, Tiny, silent

ORDERS = {"name": "orders", "address": "queue://orders", "rate": 250, "senders": 1, "receivers": 1}
EVENTS = {"name": "events", "address": "topic://events", "rate": 250, "senders": 2, "receivers": 2, "protocol": "mqtt"}
ARCHIVE = {"name": "archive", "address": "topic://events", "senders": 0, "receivers": 1, "protocol": "mqtt"}
TWO_SIDES = {"send_to": "amqp://north", "receive_from": "stomp://south"}
BULK = {"name": "bulk", "address": "queue://bulk", "rate": 0, "senders": 1, "receivers": 1, **TWO_SIDES}
HELPER = {"name": "helper", "address": "queue://bulk", "senders": 0, "receivers": 1}
GROUPS = (ORDERS, EVENTS, ARCHIVE, BULK, HELPER)
SENDERS = {0: "orders", 1: "events", 2: "events", 3: "bulk"}
CUT_OFF = 600, 850
"""Messages of bulk that have to wait for one second."""

TAKES_NS = {"orders": 2 * MS, "events": 30 * MS, "archive": 300 * MS, "bulk": 5 * MS}


def experiment(checks: dict[str, Any]) -> Any:
    return experiment_from({"name": "e", "workload": list(GROUPS), "checks": checks})


# -- names ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "slice_name", "metric"),
    [("orders.response_p99", "orders", "response_p99"), ("orders.response_p99.9", "orders", "response_p99.9"),
     ("queue://a.b.lost", "queue://a.b", "lost"), ("response_p99.9", "", "response_p99.9"), ("rate", "", "rate"),
     ("orders.nothing", "", "orders.nothing")],
)  # fmt: skip
def test_a_slice_goes_before_the_metric(name: str, slice_name: str, metric: str) -> None:
    assert split_metric(name) == (slice_name, metric)
    if metric in METRICS:
        assert metric_of(name) is METRICS[metric]


def test_a_check_of_a_slice_that_does_not_exist_is_refused_with_the_nearest_name() -> None:
    for name in ("orders.rate", "queue://orders.lost", "mqtt.response_p99", "archive.transfer_p50"):
        assert experiment({name: "<= 5s" if "p" in name.rpartition("_")[2] else "> 1"}).checks
    for name, reason in (
        ("ordres.rate", "did you mean 'orders'"),
        ("zzz.rate", "known: amqp10, mqtt, stomp, queue://orders, topic://events, queue://bulk, orders, events"),
        ("orders.duration", "no metric is called 'orders.duration'"),
    ):
        with pytest.raises(ConfigError, match=reason):
            experiment({name: "> 1"})
    with pytest.raises(ConfigError, match="it takes a duration"):
        experiment({"orders.response_p99": "<= 20"})
    assert format_value("orders.response_p99", 2e6) == "2 ms"


def test_a_check_may_name_a_destination_of_this_run() -> None:
    written = {"name": "e", "workload": {"address": "queue://q-{run}"}, "checks": {"queue://q-{run}.lost": 0}}
    assert list(experiment_from(written).for_run("r1").checks or ()) == ["queue://q-r1.lost"]


def test_a_search_may_limit_a_group() -> None:
    search = {"from": 10, "to": 100, "limits": {"orders.response_p99": "<= 20ms"}}
    document = {"name": "e", "workload": [ORDERS, EVENTS], "search": search}
    assert experiment_from(document).search is not None
    with pytest.raises(ConfigError, match="did you mean 'orders'"):
        experiment_from({**document, "search": {**search, "limits": {"order.response_p99": "<= 20ms"}}})


# -- a run of four groups -------------------------------------------------------------------------------------------


def recorded(checks: dict[str, Any]) -> Tiny:
    """Two are lost, one of events by a single receiver; the sender of orders pauses once, and bulk is cut off once."""
    tiny = Tiny(group=ORDERS, more_groups=[EVENTS, ARCHIVE, BULK, HELPER], checks=checks, statistics=ACCOUNTED)
    for sender, group in SENDERS.items():
        for seq in range(1000):
            intended_ns = MEASURE_NS + seq * 4 * MS
            late_ns = max(MEASURE_NS + 600 * MS - intended_ns, 0) if sender == 0 and 100 <= seq < 150 else 0
            tiny.send(sender, seq, intended_ns, late_ns)
            if late_ns:
                tiny.own_delay.append((sender, seq, seq, late_ns))
            receivers = {0: [0], 1: [1, 2, 3], 2: [1, 2, 3], 3: [4 + seq % 2]}[sender]
            for receiver in receivers:
                if (sender, seq) == (3, 500) or (receiver, sender, seq) == (2, 1, 700):
                    continue
                takes_ns = TAKES_NS["archive" if receiver == 3 else group] + seq * 1000
                if group == "bulk" and CUT_OFF[0] <= seq < CUT_OFF[1]:
                    takes_ns += (CUT_OFF[1] - seq) * 4 * MS  # all of them arrive when it is over
                tiny.deliver(receiver, sender, seq, intended_ns, intended_ns + late_ns + takes_ns, late_ns=late_ns)
        tiny.accept(sender, 0, 999, MEASURE_NS, MEASURE_NS + 7 * MS)
    tiny.received.sort(key=lambda row: row[5])
    return tiny


CHECKS = {
    "orders.response_p99": "<= 20ms", "orders.transfer_p99": "<= 20ms", "events.response_p99": "<= 20ms",
    "archive.response_p50": "<= 400ms", "archive.lost": 0, "events.lost": 0, "bulk.lost": 0, "orders.lost": 0,
    "mqtt.lost": "<= 1", "queue://bulk.rate": ">= 0.99 of offered", "orders.rate": ">= 0.99 of offered",
    "helper.transfer_p50": "<= 1s", "helper.rate": "> 1", "helper.lost": "<= 9",
    "bulk.outage": "<= 500ms", "queue://orders.outage": "<= 500ms", "outage": "<= 500ms", "helper.outage": "<= 1s",
    "bulk.response_p99": "<= 1s", "response_p99": "<= 1s", "orders.settle_p99.9": "<= 1s",
}  # fmt: skip


@pytest.fixture(scope="module")
def analysed(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Tiny, Summary]:
    tiny = recorded(CHECKS)
    run_dir = tiny.write(tmp_path_factory.mktemp("slices"))
    return run_dir, tiny, analyze(run_dir, spark, silent)


def slice_of(summary: Summary, name: str) -> SliceResult:
    return next(each for each in summary.slices if each.name == name)


def test_every_slice_equals_a_recount_of_its_messages(analysed: tuple[Path, Tiny, Summary]) -> None:
    _, tiny, summary = analysed
    chosen = {
        "orders": {0}, "events": {1, 2}, "bulk": {3}, "queue://orders": {0}, "topic://events": {1, 2},
        "queue://bulk": {3}, "amqp10": {0, 3}, "mqtt": {1, 2},
    }  # fmt: skip
    scopes = [each.scope for each in summary.slices]
    assert scopes == ["group"] * 5 + ["destination"] * 3 + ["protocol"] * 3
    assert {each.name for each in summary.slices} == chosen.keys() | {"archive", "helper", "stomp"}
    for name, senders in chosen.items():
        assert_recounted(slice_of(summary, name), [row for row in tiny.received if row[1] in senders], len(senders))
    archive = slice_of(summary, "archive")
    assert_recounted(archive, [row for row in tiny.received if row[0] == 3], 2)
    assert (archive.ledger.owed, archive.ledger.lost, archive.latency_of("settle")) == (2000, 0, None)
    helper, helped = slice_of(summary, "helper"), slice_of(summary, "helper").latency_of("transfer")
    assert helper.shares_queue
    assert not archive.shares_queue
    assert helped is not None
    assert helped.count == 500
    received = slice_of(summary, "stomp")  # the receiver of bulk, whose sender speaks AMQP 1.0
    assert_transfers(received, [row for row in tiny.received if row[0] == 4])
    assert received.shares_queue
    assert slice_of(summary, "events").ledger.owed == 6000
    assert slice_of(summary, "events").ledger.lost == 1
    assert slice_of(summary, "bulk").ledger.lost_acknowledged == 1
    assert slice_of(summary, "bulk").rate.offered == 0
    assert slice_of(summary, "events").rate.offered == 500


def assert_transfers(found: SliceResult, rows: list[tuple[int, ...]]) -> None:
    transfer = np.sort([row[5] - row[4] for row in rows])
    latency = found.latency_of("transfer")
    assert latency is not None
    assert (latency.count, latency.min_ns, latency.max_ns) == (len(rows), transfer[0], transfer[-1])
    for name, percent in (("p50", 50), ("p90", 90)):
        true = transfer[int(np.ceil(transfer.size * percent / 100)) - 1]
        assert latency.percentiles_ns[name] == pytest.approx(true, rel=0.004)


def assert_recounted(found: SliceResult, rows: list[tuple[int, ...]], senders: int) -> None:
    assert_transfers(found, rows)
    assert (found.ledger.sent, found.ledger.delivered) == (1000 * senders, len(rows))
    fan_out = found.ledger.owed / found.ledger.sent
    assert found.rate.sustained == pytest.approx(sum(row[5] < END_NS for row in rows) / 4 / fan_out)
    assert found.rate.sent == 250 * senders


def test_checks_of_slices_are_judged_on_their_own_evidence(analysed: tuple[Path, Tiny, Summary]) -> None:
    _, _, summary = analysed
    outcomes = {check.metric: check.outcome.value for check in summary.verdict.checks}
    assert outcomes == {
        "orders.response_p99": "invalid",  # only the pause of its own sender made it long
        "orders.transfer_p99": "pass",
        "events.response_p99": "fail",
        "archive.response_p50": "pass",
        "archive.lost": "pass",
        "events.lost": "fail",
        "bulk.lost": "fail",
        "orders.lost": "pass",
        "mqtt.lost": "pass",
        "queue://bulk.rate": "invalid",  # unbounded
        "orders.rate": "pass",
        "bulk.outage": "fail",
        "queue://orders.outage": "pass",  # its messages arrived all the time
        "outage": "fail",
        "helper.outage": "invalid",
        "bulk.response_p99": "invalid",  # unbounded
        "helper.transfer_p50": "pass",
        "helper.rate": "invalid",  # nobody knows what it was owed
        "helper.lost": "invalid",
        "response_p99": "pass",
        "orders.settle_p99.9": "invalid",  # too few samples
        "lost_acknowledged": "fail",  # of the whole run, which no check allows for
    }
    assert list(outcomes)[:-1] == list(CHECKS)
    reasons = {check.metric: "; ".join(check.reasons) for check in summary.verdict.checks}
    assert "own delay could explain it" in reasons["orders.response_p99"]
    assert "unbounded" in reasons["queue://bulk.rate"]
    assert "shares its queue" in reasons["helper.lost"]
    assert any(text.startswith("own delay up to") and "orders.response_p99" in text for text in summary.remarks)
    failing = {item.name: item.detail for item in summary.validity if not item.holds}
    assert failing.keys() == {"generator kept up", "enough samples"}
    assert failing["generator kept up"].startswith("orders: own delay")


def test_the_outage_of_a_slice_is_that_of_its_deliveries(analysed: tuple[Path, Tiny, Summary]) -> None:
    _, tiny, summary = analysed
    for name, senders in {"orders": {0}, "bulk": {3}, "topic://events": {1, 2}}.items():
        arrivals_ns = np.sort([row[5] for row in tiny.received if row[1] in senders])
        longest_ns = int(np.diff(arrivals_ns).max())
        assert slice_of(summary, name).outage_ns == (longest_ns if longest_ns > 200 * MS else 0)
    assert slice_of(summary, "bulk").outage_ns == pytest.approx(1000 * MS, abs=10 * MS)


def test_a_slice_may_be_compared(analysed: tuple[Path, Tiny, Summary]) -> None:
    run_dir = str(analysed[0])
    sides = run_group(run_dir, Path("none")), run_group(run_dir, Path("none"))
    (found,) = compare(*sides, 0.05, ["orders.transfer_p50"]).metrics
    assert found.baseline.value == pytest.approx(2.5 * MS, rel=0.01)
    with pytest.raises(ConfigError, match="no group, destination or protocol is called 'order'"):
        compare(*sides, 0.05, ["order.transfer_p50"])
