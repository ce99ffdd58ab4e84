"""Traffic of a foreign AMQP 1.0 client: Proton, one step at a time."""

from collections.abc import Iterator
from contextlib import contextmanager

from proton import Message
from proton.utils import BlockingConnection, BlockingReceiver

TIMEOUT_S = 20


@contextmanager
def connected(url: str) -> Iterator[BlockingConnection]:
    connection = BlockingConnection(url, timeout=TIMEOUT_S)
    try:
        yield connection
    finally:
        connection.close()


def send(connection: BlockingConnection, address: str, count: int, size: int = 100) -> None:
    """Send durable messages and wait until each is accepted."""
    sender = connection.create_sender(address)
    for _ in range(count):
        sender.send(Message(body=bytes(size), durable=True, inferred=True))
    sender.close()


def consume(connection: BlockingConnection, address: str, count: int) -> BlockingReceiver:
    """Receive and accept `count` messages; the receiver stays attached and takes no more."""
    receiver = connection.create_receiver(address, credit=count)
    for _ in range(count):
        receiver.receive(timeout=TIMEOUT_S)
        receiver.accept()
    # Proton writes only while it waits: after this round trip the last accept has been sent, too.
    connection.create_sender(address).close()
    return receiver
