"""Qpid Broker-J, compared with what a Proton client did."""

from collections.abc import Iterator
from contextlib import closing

import pytest

from crescendo.inspectors.base import InspectionTarget
from crescendo.inspectors.kinds.qpid_broker_j import BrokerJInspector
from crescendo.systems.base import Instance
from inspecting import inspect_until, values_of
from proton_traffic import connected, consume, send

SENT, TAKEN = 8, 5


@pytest.fixture
def inspector(qpid_broker_j: Instance) -> Iterator[BrokerJInspector]:
    with closing(BrokerJInspector(InspectionTarget(qpid_broker_j.endpoints))) as inspector:
        yield inspector


def test_a_queue_counts_what_a_client_sent_accepted_and_left(
    qpid_broker_j: Instance, inspector: BrokerJInspector
) -> None:
    with connected(qpid_broker_j.url) as connection:
        send(connection, "watched", SENT)
        consume(connection, "watched", TAKEN)
        queue = "queue/watched"
        inspection = inspect_until(
            inspector,
            {
                (queue, "MessagesAdded"): SENT,
                (queue, "MessageCount"): SENT - TAKEN,
                (queue, "MessagesAcknowledged"): TAKEN,
                (queue, "MessagesExpired"): 0,
                (queue, "ConsumerCount"): 1,
            },
        )
        values = values_of(inspection)
        assert 0 < values["memory/heap", "used"] <= values["memory/heap", "max"]
        assert any(entity.startswith("connection/") for entity, _ in values)
        assert any(entity.startswith("virtualhost/") for entity, _ in values)
    inspect_until(inspector, {(queue, "ConsumerCount"): 0})
