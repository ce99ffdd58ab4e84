"""How do two clients ask and answer?

The first sends a request and waits for the answer that carries the request's context; then it asks again. The second
answers whatever it is asked. Each knows which number must come next. The answerer is there for as long as the asker is.
"""

from crescendo.mlmq.client import Query
from crescendo.mlmq.workloads.account import ConservationFindings
from crescendo.mlmq.workloads.actor import Actor
from crescendo.mlmq.workloads.counters import PairCounter


class Paired:
    """One pair. The client with the even place in its group asks."""

    def __init__(self, findings: ConservationFindings) -> None:
        self._findings = findings
        self._members: dict[bool, Actor] = {}
        self._over = False

    def add(self, actor: Actor) -> None:
        self._members[self._asks(actor)] = actor
        self._pair = PairCounter(f"{actor.group.name}/{self._number(actor)}", self._findings)

    async def live(self, actor: Actor) -> None:
        if not self._asks(actor):
            await self._answer(actor)
            return
        try:
            await self._ask(actor)
        finally:
            self._over = True

    async def _ask(self, actor: Actor) -> None:
        partner, stream, priority = self._members[False], self._number(actor), actor.group.priority
        client = actor.client
        while not actor.draining:
            number = self._pair.asks()
            context = await actor.send(
                partner.place,
                stream,
                number,
                lambda content: client.send_request_to_client(partner.client.id, content, priority),
            )
            if context is None:
                self._pair.takes_back()
                return
            await actor.pause()
            query = Query(queue=client.own_queue, context=context)
            while (taken := await actor.take(query, actor.place)) is None:
                await actor.pause()
            message, parcel = taken
            self._pair.is_own(parcel.stream, parcel.number, stream)
            if message.sender != partner.client.id:
                self._findings.violate(f"{actor.name} was answered by client {message.sender}, not by its partner")
            await actor.pause()

    async def _answer(self, actor: Actor) -> None:
        partner, stream, priority = self._members[True], self._number(actor), actor.group.priority
        client, query = actor.client, Query(queue=actor.client.own_queue)
        while not self._over:
            taken = await actor.take(query, actor.place)
            await actor.pause()
            if taken is None or not self._pair.is_next(taken[1].stream, taken[1].number, stream):
                continue
            message, parcel = taken
            context = message.context
            if context is None:
                self._findings.violate(f"{actor.name} was asked {parcel.number} without a context")
                continue

            async def respond(content: bytes, asker: int = message.sender, context: int = context) -> object:
                return await client.send_response_to_client(asker, context, content, priority)

            await actor.send(partner.place, parcel.stream, parcel.number, respond)
            await actor.pause()

    @staticmethod
    def _asks(actor: Actor) -> bool:
        return actor.post.index % 2 == 0

    @staticmethod
    def _number(actor: Actor) -> int:
        return actor.post.index // 2
