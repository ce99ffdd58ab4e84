"""How is a public queue filled and emptied?

Producers send to it until the end of the run. Consumers take from it until every producer has ended and the queue was
seen empty after that. Producers in other processes cannot be seen from here; they all give up at a known time, so the
consumers of a shared queue wait for that time.
"""

from time import monotonic_ns

from crescendo.mlmq.client import Query
from crescendo.mlmq.workloads.account import ConservationAccount, ConservationFindings
from crescendo.mlmq.workloads.actor import Actor, WorkloadTimes
from crescendo.model.mlmq_clients import ClientKind


class PublicQueue:
    """One queue, and its producers and consumers in this process."""

    def __init__(
        self, name: str, account: ConservationAccount, findings: ConservationFindings, *, shared: bool
    ) -> None:
        self.destination = f"queue {name}"
        self.id = 0
        self._account = account
        self._findings = findings
        self._shared = shared
        self._producing = 0
        self._ended_ns: int | None = None
        self._consumed = False

    def add(self, actor: Actor) -> None:
        if actor.group.kind == ClientKind.PRODUCER:
            self._producing += 1
        else:
            self._consumed = True

    async def run(self, actor: Actor) -> None:
        if actor.group.kind == ClientKind.CONSUMER:
            await self._consume(actor)
        else:
            await self._produce(actor)

    def ended(self, actor: Actor) -> None:
        """A client has ended, normally or not."""
        if actor.group.kind == ClientKind.PRODUCER:
            self._producing -= 1
            if not self._producing:
                self._ended_ns = monotonic_ns()

    def close(self, times: WorkloadTimes) -> None:
        """Record as unresolved when it is unknown whether the queue is empty."""
        if self._shared and self._consumed and self._account.emptied_ns(self.destination) <= times.give_up_ns:
            self._findings.add_unresolved(f"{self.destination} was not seen empty at the end")

    async def _produce(self, actor: Actor) -> None:
        client, priority, number = actor.client, actor.group.priority, 0
        while not actor.draining:
            stored = await actor.send(
                self.destination,
                actor.identity.index,
                number,
                lambda payload: client.send_message(self.id, payload, priority),
                until_ns=actor.times.give_up_ns,
            )
            number += stored is not None
            await actor.pause()

    async def _consume(self, actor: Actor) -> None:
        query = Query(queue=self.id)
        while not self._is_empty(actor.times):
            await actor.take(query, self.destination)
            await actor.pause()

    def _is_empty(self, times: WorkloadTimes) -> bool:
        """Whether it was seen empty after the last time a producer could have filled it."""
        filled_ns = times.give_up_ns if self._shared else self._ended_ns
        return filled_ns is not None and self._account.emptied_ns(self.destination) > filled_ns
