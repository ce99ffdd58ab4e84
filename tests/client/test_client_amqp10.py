"""The small client against Proton, and against peers that misbehave."""

import socket
import threading
import time
from collections.abc import Iterator

import pytest
from proton import Delivery, Message

from crescendo.client.amqp10 import Amqp10Client, pass_a_message
from crescendo.model.errors import ConfigError, PeerError
from proton_node import REFUSED, Node

TIMEOUT_S = 10.0  # on a busy machine
SHORT_S = 0.5


@pytest.fixture(scope="module")
def node() -> Iterator[Node]:
    with Node(answered).running() as node:
        yield node


def answered(question: Message) -> list[Message]:
    """A late answer to another request comes first."""
    stray = Message(body="late", correlation_id="of another question")
    body = {"echo": question.body, "list": [1, None, "x"]}
    return [stray, Message(body=body, correlation_id=question.correlation_id, properties={"statusCode": 200})]


def test_a_message_passes_through_a_queue(node: Node) -> None:
    pass_a_message(node.url, "proof", TIMEOUT_S)


def test_messages_are_received_in_order(node: Node) -> None:
    with Amqp10Client(node.url, TIMEOUT_S) as client:
        for number in range(5):
            client.send("perf", b"body %d" % number)
        assert [client.receive("perf") for _ in range(5)] == [b"body %d" % number for number in range(5)]


def test_an_answer_is_found_by_its_correlation_id(node: Node) -> None:
    with Amqp10Client(node.url, TIMEOUT_S) as client:
        for number in range(3):
            answer = client.request("$management", {"n": number}, {"operation": "QUERY"})
            assert answer.body == {"echo": {"n": number}, "list": [1, None, "x"]}
            assert answer.application_properties == {"statusCode": 200}
    question = node.questions[-1]
    assert question.body == {"n": 2}
    assert question.properties == {"operation": "QUERY"}
    assert question.reply_to.startswith("temp.")


def test_a_link_that_is_refused_says_why(node: Node) -> None:
    with Amqp10Client(node.url, TIMEOUT_S) as client, pytest.raises(PeerError, match="not for you"):
        client.send(REFUSED, b"x")
    assert client.stale


def test_no_message_in_time_is_a_peer_error(node: Node) -> None:
    with Amqp10Client(node.url, TIMEOUT_S) as client:
        start_s = time.monotonic()
        with pytest.raises(PeerError, match="no message from 'empty'"):
            client.receive("empty", SHORT_S)
        assert SHORT_S <= time.monotonic() - start_s < TIMEOUT_S
        client.send("empty", b"late")  # the credit of the receive that timed out is still there
        assert client.receive("empty") == b"late"


def test_a_message_that_is_not_accepted_is_a_peer_error() -> None:
    with Node(outcome=Delivery.REJECTED).running() as node, Amqp10Client(node.url, TIMEOUT_S) as client:
        with pytest.raises(PeerError, match="did not accept"):
            client.send("perf", b"x")
        with pytest.raises(PeerError, match="did not accept"):
            client.request("$management", {})


def test_a_refused_connection_is_reported_in_one_sentence() -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    with pytest.raises(PeerError, match=f"127.0.0.1:{port} refused the connection"):
        Amqp10Client(f"amqp://user:secret@127.0.0.1:{port}", TIMEOUT_S)


def test_a_url_of_another_protocol_is_a_config_error() -> None:
    with pytest.raises(ConfigError, match="amqp://"):
        Amqp10Client("http://user:secret@127.0.0.1:1", TIMEOUT_S)


@pytest.mark.parametrize("answer", [b"", b"AMQP\x03\x01\x00\x00", b"HTTP/1.1 400 Bad Request\r\n\r\n"])
def test_a_peer_that_hangs_or_speaks_another_protocol_fails_in_time(answer: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        held: list[socket.socket] = []

        def serve() -> None:
            connected, _ = server.accept()
            held.append(connected)
            connected.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        start_s = time.monotonic()
        with pytest.raises(PeerError) as failure:
            Amqp10Client(f"amqp://user:secret@127.0.0.1:{server.getsockname()[1]}", SHORT_S)
        assert time.monotonic() - start_s < TIMEOUT_S
        assert "secret" not in str(failure.value)
        thread.join()
        held[0].close()
