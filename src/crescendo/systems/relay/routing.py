"""Which receiver gets a message, and which sender gets credit?

A message to a queue goes to one of its receivers, round-robin; a message to a topic to all of them. It is kept until
its receiver settles it, and redelivered when that receiver releases it or disconnects. Senders get credit only while
their queues are short. Knows connections but no sockets: the server passes in how to flush a client.
"""

from collections.abc import Callable, Mapping

from crescendo.model.errors import PeerError
from crescendo.systems.relay.queues import Consumer, Producer, Queue, RelayClient
from crescendo.systems.relay.unsettled import take_settled
from crescendo.wire.amqp10.batch import TransferBatch
from crescendo.wire.amqp10.events import Deliveries, Settled
from crescendo.wire.amqp10.links import RECEIVER, SETTLE_SETTLED
from crescendo.wire.amqp10.performatives import Attach, Modified, Released, Source, Target
from crescendo.wire.amqp10.termini import TOPIC

CREDIT = 4000
DEPTH_LIMIT = 100_000


class Routing:
    """Queues and topics, and the links of all clients to them."""

    def __init__(self, clients: Mapping[int, RelayClient], flush: Callable[[RelayClient], bool]) -> None:
        self._clients = clients
        self._flush = flush
        self._queues: dict[str, Queue] = {}
        self._topics: dict[str, list[Queue]] = {}

    def serve(self, client: RelayClient) -> None:
        """After credit or new messages from this client: send every message that can be sent now."""
        for consumer in list(client.consumers.values()):
            self._dispatch(consumer.queue)
        for producer in list(client.producers.values()):
            for queue in list(producer.queues):
                self._dispatch(queue)
            self._top_up_credit(producer)

    # -- messages in ---------------------------------------------------------------------------------------------

    def store(self, client: RelayClient, deliveries: Deliveries) -> None:
        producer = client.producers.get(deliveries.handle)
        if producer is None:
            raise PeerError("a message on a link that is not a sender's")
        bodies = deliveries.bodies.copy()  # the view is valid until the next read only
        for queue in producer.queues:
            queue.put(bodies)
        producer.credit -= len(bodies)
        if not deliveries.settled:
            client.connection.settle(int(deliveries.ids[0]), int(deliveries.ids[-1]))

    def _top_up_credit(self, producer: Producer) -> None:
        if producer.credit <= CREDIT // 2 and all(queue.depth < DEPTH_LIMIT for queue in producer.queues):
            producer.credit = CREDIT
            producer.client.connection.grant(producer.handle, CREDIT)

    # -- messages out --------------------------------------------------------------------------------------------

    def _dispatch(self, queue: Queue) -> None:
        was_full = queue.depth >= DEPTH_LIMIT
        for consumer in list(queue.consumers):
            if queue.waiting and consumer in queue.consumers:  # sending to one may reveal that another has disconnected
                queue.consumers.rotate(-1)  # round-robin: receivers share fairly
                self._send(consumer)
        if was_full and queue.depth < DEPTH_LIMIT:
            self._grant_waiting()

    def _grant_waiting(self) -> None:
        """A queue is short again, or gone: grant credit to the senders that waited for it."""
        for client in list(self._clients.values()):
            for producer in list(client.producers.values()):
                self._top_up_credit(producer)
            self._flush(client)

    def _send(self, consumer: Consumer) -> None:
        connection = consumer.client.connection
        queue = consumer.queue
        while queue.waiting and not connection.outgoing:
            length = queue.waiting[0].shape[1]
            batch = self._batch_for(consumer, length)
            room = min(connection.sendable(consumer.handle, length), batch.capacity)
            if room == 0:
                break
            bodies = queue.take(room)
            first = connection.next_delivery_id
            if batch.frame_length <= connection.remote_max_frame_size:
                batch.bodies[: len(bodies)] = bodies
                connection.transfer(batch, consumer.handle, len(bodies))
            else:
                for body in bodies:
                    connection.transfer_one(consumer.handle, body.tobytes(), settled=consumer.settled)
            if not consumer.settled:
                consumer.unsettled.append((first, bodies))
            self._flush(consumer.client)

    def _batch_for(self, consumer: Consumer, length: int) -> TransferBatch:
        batch = consumer.batch
        if batch is None or batch.bodies.shape[1] != length:
            batch = consumer.batch = TransferBatch(
                handle=consumer.handle, body_length=length, settled=consumer.settled
            )  # fmt: skip
        return batch

    def settle(self, client: RelayClient, settled: Settled) -> None:
        """Forget the settled deliveries; requeue those that the receiver released."""
        released = isinstance(settled.state, Released | Modified)
        for consumer in client.consumers.values():
            for first, last in reversed(settled.ranges):
                taken = take_settled(consumer.unsettled, first, last)
                for bodies in reversed(taken) if released else ():
                    consumer.queue.put_back(bodies)

    # -- links ---------------------------------------------------------------------------------------------------

    def attach(self, client: RelayClient, handle: int, attach: Attach) -> None:
        terminus = attach.source if attach.role is RECEIVER else attach.target
        address = getattr(terminus, "address", None)
        if not isinstance(terminus, Source | Target) or not isinstance(address, str) or not address:
            client.connection.refuse_attach(handle, attach, "amqp:invalid-field", "the relay needs an address")
            return
        topic = TOPIC in (terminus.capabilities or ())
        client.connection.accept_attach(handle, attach)
        if attach.role is RECEIVER:
            queue = Queue() if topic else self._queues.setdefault(address, Queue())
            if topic:
                self._topics.setdefault(address, []).append(queue)
            consumer = Consumer(client, handle, queue, attach.snd_settle_mode == SETTLE_SETTLED)
            client.consumers[handle] = consumer
            queue.consumers.append(consumer)
        else:
            queues = self._topics.setdefault(address, []) if topic else [self._queues.setdefault(address, Queue())]
            producer = Producer(client, handle, queues)
            client.producers[handle] = producer
            self._top_up_credit(producer)

    def detach(self, client: RelayClient, handle: int) -> None:
        producer = client.producers.pop(handle, None)
        for queue in list(producer.queues) if producer is not None else ():
            self._dispatch(queue)  # its last messages may have arrived together with its detach
        consumer = client.consumers.pop(handle, None)
        if consumer is None:
            return
        consumer.queue.consumers.remove(consumer)
        for _, bodies in reversed(consumer.unsettled):
            consumer.queue.put_back(bodies)
        for queues in self._topics.values():
            if consumer.queue in queues:
                queues.remove(consumer.queue)
                self._grant_waiting()
        self._dispatch(consumer.queue)

    def detach_all(self, client: RelayClient) -> None:
        for handle in [*client.producers, *client.consumers]:
            self.detach(client, handle)
