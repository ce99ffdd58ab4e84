"""Streams of Core in both directions, and connections that read them as the load does."""

import random
import struct

from core_streams import (
    ACCEPTED,
    CREDITS,
    NAME,
    PING,
    Script,
    Shape,
    client_of,
    exception,
    frame,
    queue_info,
    response,
)
from crescendo.wire.artemis_core.connection import Connection
from crescendo.wire.artemis_core.events import Completed, Connected, Deliveries
from crescendo.wire.artemis_core.packets import RoutingType
from crescendo.wire.artemis_core.server import ServerConnection
from crescendo.wire.responses import Responses
from fuzzing import FuzzTarget, overwrite_length, read_and_answer, read_and_react, requests_in
from stream_feed import events_of, take_outgoing


def broker_stream() -> bytes:
    """The frames of a broker to a client that sends and receives."""
    script = Script()
    shapes = (Shape(), Shape(code=3), Shape(user_id=bytes(16)), Shape(properties=b"\1\0\0\0\0"))
    for shape in shapes:
        for number in range(6):
            script.message(shape, number, bytes(40 + number // 4))
        for number in range(6):
            script.response(number)
    script.large(bytes(200), 3)
    ended = frame(-19, b"\0\0\0\0\0", 0)
    rest = response(-1) + exception(210, "full", 3) + CREDITS + PING + exception(105, "no permission") + ended
    return ACCEPTED + queue_info() + bytes(script.octets) + rest


def client_stream() -> bytes:
    """The frames of a client to a broker."""
    client = Connection(NAME, user="u", password="a longer password", client_id="us")
    list(events_of(client, ACCEPTED))
    client.query_queue("q")
    client.query_address("t")
    client.create_address("t", RoutingType.MULTICAST)
    client.create_queue("q", "q", selector="a = 1")
    client.add_producer(1, "q")
    client.request_credits("q", 1000)
    client.add_consumer(1, "q", selector="a = 1")
    client.start()
    client.grant(1, 1000)
    for number in range(8):
        client.send(number, b"body", producer=1, address="q", properties={"a": number})
    for event in events_of(client, b"".join(Shape().message(number, b"x")[0] for number in range(3))):
        client.acknowledge(event.consumer, event.ids, answered=True)
    client.commit()
    client.rollback()
    client.heartbeat()
    client.disconnect()
    return take_outgoing(client)


def survive_as_client(stream: bytes, dice: random.Random) -> int:
    """Read the stream as the load does; returns the number of bytes written in answer."""
    return read_and_react(Connection(NAME, batching=dice.random() < 0.8), stream, dice, react)


def react(client: Connection, event: object) -> None:
    if isinstance(event, Connected):
        for _ in range(3):  # the answers that the stream has
            client.query_queue("q")
    elif isinstance(event, Completed):
        client.add_producer(1, "q")
    elif isinstance(event, Deliveries):
        assert event.bodies.sum() >= 0  # every announced byte is readable
        client.acknowledge(event.consumer, event.ids[-1:])
    elif isinstance(event, Responses):
        assert event.numbers.min() >= 0


def survive_as_server(stream: bytes, dice: random.Random) -> int:
    server = ServerConnection()
    return read_and_answer(server, server.next_packet, stream, dice, server.respond)


def client_reads_to_the_end() -> None:
    client = client_of()
    for _ in range(3):
        client.query_queue("q")
    messages = sum(
        len(event.ids) for event in events_of(client, broker_stream()[len(ACCEPTED) :]) if isinstance(event, Deliveries)
    )
    assert messages == 25
    assert client.closed


def server_reads_to_the_end() -> None:
    server = ServerConnection()
    packets = requests_in(server, server.next_packet, client_stream())
    assert [type(packet).__name__ for packet in packets] == [
        "QueryQueue", "QueryAddress", "CreateAddress", "CreateQueue", "CreateProducer", "RequestCredits",
        "CreateConsumer", "StartSession", "ConsumerCredits", *["SendMessage"] * 8, *["Acknowledge"] * 3, "Commit",
        "Rollback", "CloseSession",
    ]  # fmt: skip


def corrupt(octets: bytearray, at: int, dice: random.Random) -> None:
    """A wrong length, or another type of packet."""
    if dice.random() < 0.5:
        overwrite_length(octets, at, dice)
    else:
        octets[at : at + 1] = struct.pack(">b", dice.choice((10, 20, 21, 31, 71, 75, 76, 77, 80, -12, -14, -19, -22)))


OCTETS = bytes((0, 1, 2, 10, 13, 20, 21, 71, 75, 76, 77, 127, 128, 255))
CORE_FUZZ_TARGETS = [
    FuzzTarget("core-client", broker_stream(), survive_as_client, client_reads_to_the_end, OCTETS, corrupt),
    FuzzTarget("core-server", client_stream(), survive_as_server, server_reads_to_the_end, OCTETS, corrupt),
]
