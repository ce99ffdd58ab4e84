"""Streams of OpenWire in both directions, and connections that read them as the load does."""

import random
import struct

from crescendo.wire.openwire.connection import Connection
from crescendo.wire.openwire.events import Connected, Deliveries
from crescendo.wire.openwire.identifiers import QueueDestination
from crescendo.wire.openwire.server import ServerConnection
from crescendo.wire.responses import Responses
from fuzzing import FuzzTarget, overwrite_length, read_and_answer, read_and_react, requests_in
from openwire_streams import (
    ACCEPTED,
    KEEP_ALIVE,
    NAME,
    NO,
    YES,
    Script,
    Shape,
    command,
    destination,
    exception_response,
    response,
    utf,
    wire_format,
)
from stream_feed import events_of, take_outgoing


def broker_stream() -> bytes:
    """The frames of a broker to a client that sends and receives."""
    script = Script()
    shapes = (
        Shape(),
        Shape(code=28, properties=b"\0\0\0\0"),
        Shape(text_view="ID:"),
        Shape(data_structure=destination("x")),
    )
    for shape in shapes:
        for number in range(6):
            script.message(shape, number, bytes(40 + number // 4))
        for number in range(6):
            script.response(number)
    ended = command(16, 0, False, YES + YES + utf("java.io.EOFException") + YES + utf("over") + NO)
    return ACCEPTED + bytes(script.octets) + response(-2) + exception_response(3, "full") + KEEP_ALIVE + ended


def client_stream() -> bytes:
    """The frames of a client to a broker."""
    client = Connection(NAME, user="u", password="p")
    list(events_of(client, wire_format() + response(-1)))
    client.add_producer(1, QueueDestination("q"))
    client.add_consumer(1, QueueDestination("q"), prefetch=10, selector="a = 1")
    for number in range(8):
        client.send(number, b"body", producer=1, destination=QueueDestination("q"), properties={"a": number})
    for event in events_of(client, b"".join(Shape().message(number, b"x")[0] for number in range(3))):
        client.acknowledge(event.consumer, event.destination, event.ids)
    client.commit(1)
    client.disconnect()
    return take_outgoing(client)


def survive_as_client(stream: bytes, dice: random.Random) -> int:
    """Read the stream as the load does; returns the number of bytes written in answer."""
    return read_and_react(Connection(NAME, batching=dice.random() < 0.8), stream, dice, react)


def react(client: Connection, event: object) -> None:
    if isinstance(event, Connected):
        client.add_producer(1, QueueDestination("q"))
    elif isinstance(event, Deliveries):
        assert event.bodies.sum() >= 0  # every announced byte is readable
        client.acknowledge_span(
            event.consumer, event.destination, event.ids[0].tobytes(), event.ids[-1].tobytes(), len(event.ids)
        )
    elif isinstance(event, Responses):
        assert event.numbers.min() >= 0


def survive_as_server(stream: bytes, dice: random.Random) -> int:
    server = ServerConnection()
    return read_and_answer(server, server.next_command, stream, dice, server.respond)


def client_reads_to_the_end() -> None:
    client = Connection(NAME)
    messages = sum(len(event.ids) for event in events_of(client, broker_stream()) if isinstance(event, Deliveries))
    assert messages == 24
    assert client.closed


def server_reads_to_the_end() -> None:
    server = ServerConnection()
    commands = requests_in(server, server.next_command, client_stream())
    assert [type(command).__name__ for command in commands] == [
        "ConnectionInfo", "SessionInfo", "ProducerInfo", "ConsumerInfo", *["BytesMessage"] * 8, *["MessageAck"] * 3,
        "TransactionInfo", "RemoveInfo", "ShutdownInfo",
    ]  # fmt: skip


def corrupt(octets: bytearray, at: int, dice: random.Random) -> None:
    """A wrong length, or another type of structure."""
    if dice.random() < 0.5:
        overwrite_length(octets, at, dice)
    else:
        octets[at : at + 2] = YES + struct.pack(">B", dice.choice((0, 1, 2, 21, 24, 30, 100, 110, 120, 123, 255)))


OCTETS = bytes((0, 1, 2, 21, 22, 24, 30, 31, 100, 110, 127, 128, 255))
OPENWIRE_FUZZ_TARGETS = [
    FuzzTarget("openwire-client", broker_stream(), survive_as_client, client_reads_to_the_end, OCTETS, corrupt),
    FuzzTarget("openwire-server", client_stream(), survive_as_server, server_reads_to_the_end, OCTETS, corrupt),
]
