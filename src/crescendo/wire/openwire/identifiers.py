"""How do OpenWire peers name connections, sessions, producers, consumers, messages, transactions and destinations?

A client chooses the name of its connection; everything below it is numbered. Values only.
"""

from typing import Annotated

from crescendo.wire.openwire.structures import NESTED, Binary, Int, Long, RawText, Since, Structure, Text, structure


class Destination(Structure, frozen=True):
    """Where messages are sent to."""

    name: Text = None


@structure(100)
class QueueDestination(Destination, frozen=True):
    pass


@structure(101)
class TopicDestination(Destination, frozen=True):
    pass


@structure(102)
class TemporaryQueueDestination(Destination, frozen=True):
    pass


@structure(103)
class TemporaryTopicDestination(Destination, frozen=True):
    pass


@structure(120)
class ConnectionId(Structure, frozen=True):
    value: Text = None


@structure(121)
class SessionId(Structure, frozen=True):
    connection: Text = None
    value: Long = 0


@structure(122)
class ConsumerId(Structure, frozen=True):
    connection: Text = None
    session: Long = 0
    value: Long = 0


@structure(123)
class ProducerId(Structure, frozen=True):
    connection: RawText = None
    value: Long = 0
    session: Long = 0


@structure(124)
class BrokerId(Structure, frozen=True):
    value: Text = None


@structure(110)
class MessageId(Structure, frozen=True):
    """A message: the n-th of its producer. Messages of other protocols have a text instead."""

    text_view: Annotated[RawText, Since(10)] = None
    producer: Annotated[ProducerId | None, NESTED] = None
    sequence: Long = 0
    broker_sequence: Long = 0


class TransactionId(Structure, frozen=True):
    """A local or a distributed transaction."""


@structure(111)
class LocalTransactionId(TransactionId, frozen=True):
    value: Long = 0
    connection: Annotated[ConnectionId | None, NESTED] = None


@structure(112)
class XaTransactionId(TransactionId, frozen=True):
    format_id: Int = 0
    global_id: Binary = None
    branch: Binary = None
