"""ActiveMQ Classic, compared with what a STOMP client did."""

import threading
from collections.abc import Iterator
from contextlib import closing
from urllib.parse import urlsplit

import pytest

import stomp
from crescendo.inspectors.base import InspectionTarget
from crescendo.inspectors.kinds.activemq import ActiveMQInspector
from crescendo.systems.base import Instance
from inspecting import inspect_until, values_of

SENT, TAKEN = 9, 4
TIMEOUT_S = 20


@pytest.fixture
def inspector(activemq: Instance) -> Iterator[ActiveMQInspector]:
    with closing(ActiveMQInspector(InspectionTarget(activemq.endpoints))) as inspector:
        yield inspector


class Taker(stomp.ConnectionListener):
    """Acknowledges `count` messages, one by one."""

    def __init__(self, connection: stomp.Connection12, count: int) -> None:
        self._connection = connection
        self._left = count
        self.done = threading.Event()

    def on_message(self, frame: stomp.utils.Frame) -> None:
        if self._left:
            self._left -= 1
            self._connection.ack(frame.headers["ack"])
        if not self._left:
            self.done.set()


def test_a_queue_counts_what_a_client_sent_acknowledged_and_left(
    activemq: Instance, inspector: ActiveMQInspector
) -> None:
    url = urlsplit(activemq.endpoints["stomp"])
    connection = stomp.Connection12([(url.hostname, url.port)])
    taker = Taker(connection, TAKEN)
    connection.set_listener("taker", taker)
    connection.connect(url.username, url.password, wait=True)
    for number in range(SENT):
        connection.send("/queue/watched", f"message {number}", headers={"persistent": "true"})
    # At most one unacknowledged message is prefetched, so that the others stay in the queue.
    connection.subscribe("/queue/watched", id="1", ack="client-individual", headers={"activemq.prefetchSize": "1"})
    assert taker.done.wait(TIMEOUT_S)
    queue = "queue/watched"
    inspection = inspect_until(
        inspector,
        {
            (queue, "MessagesAdded"): SENT,
            (queue, "MessageCount"): SENT - TAKEN,
            (queue, "MessagesAcknowledged"): TAKEN,
            (queue, "MessagesExpired"): 0,
            (queue, "ConsumerCount"): 1,
            ("broker", "CurrentConnectionsCount"): 1,
        },
    )
    values = values_of(inspection)
    for usage in ("store", "temp", "memory"):
        assert values[f"usage/{usage}", "limit_bytes"] >= 0
        assert 0 <= values[f"usage/{usage}", "percent"] <= 100
    for area in ("heap", "eden", "survivor", "tenured", "metaspace"):
        assert values[f"memory/{area}", "used"] >= 0
    connection.disconnect()
    inspect_until(inspector, {(queue, "ConsumerCount"): 0, ("broker", "CurrentConnectionsCount"): 0})
