"""Does the router's inspector query correctly, fail in time, and report what a client did?

Always against a Proton container that gives the recorded answers of a real router; and, where one is installed, against
a real router under the traffic of a Proton client.
"""

import shutil
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest
from proton import Message

from answering_container import Answering
from crescendo.inspectors.base import InspectionTarget
from crescendo.inspectors.kinds.qpid_dispatch import PREFIX, TYPES, DispatchInspector
from crescendo.model.errors import PeerError
from crescendo.systems.base import Instance
from dispatch_recordings import RECORDED, decoded
from inspecting import TIMEOUT_S, inspect_until, inspect_until_failure, values_of
from proton_traffic import connected, consume, send

COUNT = 12
needs_router = pytest.mark.skipif(shutil.which("qdrouterd") is None, reason="no qdrouterd on the PATH")


def as_recorded(question: Message) -> Message:
    kind = question.properties["entityType"].removeprefix(PREFIX)
    if kind in RECORDED:
        return decoded(kind)
    return Message(body={"attributeNames": [], "results": []}, properties={"statusCode": 200})


@pytest.fixture(scope="module")
def container() -> Iterator[Answering]:
    with Answering(as_recorded).running() as container:
        yield container


def test_an_inspection_queries_every_type_over_one_connection(container: Answering) -> None:
    with closing(DispatchInspector(InspectionTarget({"amqp": container.url}), TIMEOUT_S)) as inspector:
        before = len(container.questions)
        first, second = inspector.inspect(), inspector.inspect()
    asked = container.questions[before:]
    assert [q.properties["entityType"] for q in asked] == [PREFIX + kind for kind in TYPES] * 2
    assert len({q.reply_to for q in asked}) == 1
    assert len({q.correlation_id for q in asked}) == len(asked)
    assert first == second
    router = dict(zip(decoded("router").body["attributeNames"], decoded("router").body["results"][0], strict=True))
    assert values_of(first)["router/1", "linkCount"] == router["linkCount"]
    assert first.texts["router/1", "name"] == router["name"]


def test_a_restarted_router_is_inspected_again(container: Answering) -> None:
    with closing(DispatchInspector(InspectionTarget({"amqp": container.url}), TIMEOUT_S)) as inspector:
        whole = inspector.inspect()
        container.drop_connections()
        assert "closed" in inspect_until_failure(inspector)
        assert inspector.inspect() == whole


def test_a_silent_router_is_a_failed_inspection_in_time() -> None:
    with Answering(lambda _: None).running() as mute:
        inspector = DispatchInspector(InspectionTarget({"management": mute.url}), timeout_s=0.5)
        started_s = time.monotonic()
        with pytest.raises(PeerError, match=r"no answer from '\$management'"):
            inspector.inspect()
        assert time.monotonic() - started_s < TIMEOUT_S
        inspector.close()
        inspector.close()


@needs_router
def test_a_real_router_counts_what_a_client_sent_and_received(qpid_dispatch: Instance) -> None:
    address = "router.address/M0watched"
    with (
        closing(DispatchInspector(InspectionTarget(qpid_dispatch.endpoints))) as inspector,
        ThreadPoolExecutor(1) as executor,
    ):
        with connected(qpid_dispatch.url) as connection:
            # A router settles with the sender when the receiver settles with it, so both must be connected.
            sending = executor.submit(send_from_another_connection, qpid_dispatch.url)
            consume(connection, "watched", COUNT)
            sending.result(TIMEOUT_S)
            inspection = inspect_until(
                inspector,
                {
                    (address, "deliveriesIngress"): COUNT,
                    (address, "deliveriesEgress"): COUNT,
                    (address, "subscriberCount"): 1,
                    ("router/1", "connectionCount"): 2,  # the receiver's and the inspector's
                },
            )
            values = values_of(inspection)
            (link,) = [
                key[0] for key, text in inspection.texts.items() if (key[1], text) == ("owningAddr", "M0watched")
            ]
            assert inspection.texts[link, "linkDir"] == "out"
            assert (values[link, "acceptedCount"], values[link, "unsettledCount"]) == (COUNT, 0)
            assert values["router/1", "acceptedDeliveries"] >= COUNT
            assert values["allocator/qd_buffer_t", "totalAllocFromHeapBytes"] > 0
        inspect_until(inspector, {("router/1", "connectionCount"): 1})


def send_from_another_connection(url: str) -> None:
    with connected(url) as connection:
        send(connection, "watched", COUNT)
