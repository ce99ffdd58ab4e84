"""MLMQ, compared with what its own client did."""

from collections.abc import Iterator
from contextlib import closing

import pytest

from crescendo.client.mlmq import brokers_of
from crescendo.inspectors.base import InspectionTarget
from crescendo.inspectors.kinds.mlmq import MlmqInspector
from crescendo.mlmq.client import Client, Query
from crescendo.model.errors import ConfigError, PeerError
from crescendo.systems.base import Instance
from inspecting import inspect_until, values_of
from misbehaving_http import answering, serving

SENT = 7
GAUGES = ("request_queue", "response_queue", "waiting", "workers_busy", "pool_in_use", "clients", "database_up")
COUNTERS = ("shed_total", "clients_seen_total", "database_failures_total")


@pytest.fixture
def inspector(mlmq: Instance) -> Iterator[MlmqInspector]:
    with closing(MlmqInspector(InspectionTarget(mlmq.endpoints))) as inspector:
        yield inspector


def test_every_broker_counts_the_requests_of_a_client(mlmq: Instance, inspector: MlmqInspector) -> None:
    before = values_of(inspector.inspect())
    sent, empty = ("broker/2/Send/ok", "requests_total"), ("broker/2/Dequeue/empty", "requests_total")
    with Client("watched", [brokers_of(mlmq.endpoints["mlmq"])[1]], timeout_s=60) as client:
        client.register()
        queue = client.create_queue("watched queue").queue
        for _ in range(SENT):
            client.send_message(queue, b"seen")
        assert len(client.dequeue_messages(Query(queue=queue), 100)) == SENT
        assert client.dequeue_message(Query(queue=queue)) is None
        expected = {sent: before.get(sent, 0) + SENT, empty: before.get(empty, 0) + 1}
        values = values_of(inspect_until(inspector, expected))
        assert values["broker/2", "clients"] >= 1
    statements = "broker/2/Send", "statements_total"
    assert 1 <= values[statements] - before.get(statements, 0) <= SENT
    spent = "broker/2/Send", "database_seconds_total"
    assert values[spent] > before.get(spent, 0)
    assert values["broker/2/database", "tier_seconds_total"] >= values[spent]
    for broker in ("broker/1", "broker/2"):
        for name in (*GAUGES, *COUNTERS):
            assert values[broker, name] >= 0
        assert values[broker, "workers"] == 2
        assert values[broker, "database_up"] == 1


def test_a_single_broker_has_no_number(mlmq: Instance) -> None:
    url = f"{mlmq.endpoints['management']}/metrics"
    with closing(MlmqInspector(InspectionTarget({"management": url}))) as inspector:
        assert values_of(inspector.inspect())["broker", "database_up"] == 1


@pytest.mark.parametrize(
    ("page", "message"),
    [
        (b"crescendo_mlmq_clients 1\n", "are incomplete"),
        (b"# TYPE go_goroutines gauge\ngo_goroutines 8\n# EOF\n", "is this MLMQ?"),
        (b"", "are incomplete"),
        (b"\xff\xfe", "not text"),
    ],
)
def test_a_truncated_or_foreign_page_is_a_failed_inspection(page: bytes, message: str) -> None:
    with (
        serving(answering("200 OK", page)) as url,
        closing(MlmqInspector(InspectionTarget({"management": url}))) as inspector,
    ):
        with pytest.raises(PeerError) as failure:
            inspector.inspect()
        assert message in str(failure.value)
        assert "hush" not in str(failure.value)


def test_samples_that_are_not_numbers_or_not_ours_are_left_out() -> None:
    page = b'crescendo_mlmq_a{kind="x y",of="z"} 2.5\ncrescendo_mlmq_b NaN\ncrescendo_mlmq_c none\nd 1\n# EOF\n'
    with (
        serving(answering("200 OK", page)) as url,
        closing(MlmqInspector(InspectionTarget({"management": url}))) as inspector,
    ):
        assert values_of(inspector.inspect()) == {("broker/x y/z", "a"): 2.5}


def test_a_missing_page_is_reported_with_the_cure() -> None:
    with pytest.raises(ConfigError, match="give it a url such as http://"):
        MlmqInspector(InspectionTarget({"mlmq": "mlmq://127.0.0.1:8099"}))
