"""The inspector of the router, asking.

Always of a Proton container that gives the answers a real router once gave; of a real router under the traffic of a
Proton client where there is one.
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
from inspecting import PATIENCE_S, until, until_failure, values_of
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


def test_a_look_asks_for_every_type_over_one_connection(container: Answering) -> None:
    with closing(DispatchInspector(InspectionTarget({"amqp": container.url}), PATIENCE_S)) as inspector:
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


def test_a_router_that_came_back_is_looked_at_again(container: Answering) -> None:
    with closing(DispatchInspector(InspectionTarget({"amqp": container.url}), PATIENCE_S)) as inspector:
        whole = inspector.inspect()
        container.drop_connections()
        assert "closed" in until_failure(inspector)
        assert inspector.inspect() == whole


def test_a_router_that_does_not_answer_is_a_failed_look_in_time() -> None:
    with Answering(lambda _: None).running() as mute:
        inspector = DispatchInspector(InspectionTarget({"management": mute.url}), timeout_s=0.5)
        begun_s = time.monotonic()
        with pytest.raises(PeerError, match=r"no answer from '\$management'"):
            inspector.inspect()
        assert time.monotonic() - begun_s < PATIENCE_S
        inspector.close()
        inspector.close()


@needs_router
def test_a_real_router_counts_what_a_client_sent_and_received(qpid_dispatch: Instance) -> None:
    address = "router.address/M0watched"
    with (
        closing(DispatchInspector(InspectionTarget(qpid_dispatch.endpoints))) as inspector,
        ThreadPoolExecutor(1) as beside,
    ):
        with connected(qpid_dispatch.url) as connection:
            # A router settles with the sender what the receiver settles with it, so both must be there at once.
            sending = beside.submit(send_from_another_connection, qpid_dispatch.url)
            consume(connection, "watched", COUNT)
            sending.result(PATIENCE_S)
            look = until(
                inspector,
                {
                    (address, "deliveriesIngress"): COUNT,
                    (address, "deliveriesEgress"): COUNT,
                    (address, "subscriberCount"): 1,
                    ("router/1", "connectionCount"): 2,  # the receiver's and the inspector's
                },
            )
            values = values_of(look)
            (link,) = [key[0] for key, text in look.texts.items() if (key[1], text) == ("owningAddr", "M0watched")]
            assert look.texts[link, "linkDir"] == "out"
            assert (values[link, "acceptedCount"], values[link, "unsettledCount"]) == (COUNT, 0)
            assert values["router/1", "acceptedDeliveries"] >= COUNT
            assert values["allocator/qd_buffer_t", "totalAllocFromHeapBytes"] > 0
        until(inspector, {("router/1", "connectionCount"): 1})


def send_from_another_connection(url: str) -> None:
    with connected(url) as connection:
        send(connection, "watched", COUNT)
