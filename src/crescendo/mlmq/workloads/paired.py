"""How do two clients exchange requests and responses?

The first sends a request and waits for the answer that carries the request's context; then it sends the next. The
second answers every request. Each knows which number must come next. The responder stays as long as the requester.
"""

from crescendo.mlmq.client import Query
from crescendo.mlmq.workloads.account import ConservationFindings
from crescendo.mlmq.workloads.actor import Actor
from crescendo.mlmq.workloads.counters import PairCounter


class Paired:
    """One pair. The client with the even index in its group is the requester."""

    def __init__(self, findings: ConservationFindings) -> None:
        self._findings = findings
        self._members: dict[bool, Actor] = {}
        self._over = False

    def add(self, actor: Actor) -> None:
        self._members[self._is_requester(actor)] = actor
        self._pair = PairCounter(f"{actor.group.name}/{self._number(actor)}", self._findings)

    async def run(self, actor: Actor) -> None:
        if not self._is_requester(actor):
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
            number = self._pair.next_request()
            context = await actor.send(
                partner.destination,
                stream,
                number,
                lambda payload: client.send_request_to_client(partner.client.id, payload, priority),
            )
            if context is None:
                self._pair.undo_request()
                return
            await actor.pause()
            query = Query(queue=client.own_queue, context=context)
            while (taken := await actor.take(query, actor.destination)) is None:
                await actor.pause()
            message, content = taken
            self._pair.check_answer(content.stream, content.number, stream)
            if message.sender != partner.client.id:
                self._findings.add_violation(
                    f"{actor.name} got an answer from client {message.sender}, not from its partner"
                )
            await actor.pause()

    async def _answer(self, actor: Actor) -> None:
        partner, stream, priority = self._members[True], self._number(actor), actor.group.priority
        client, query = actor.client, Query(queue=actor.client.own_queue)
        while not self._over:
            taken = await actor.take(query, actor.destination)
            await actor.pause()
            if taken is None or not self._pair.check_request(taken[1].stream, taken[1].number, stream):
                continue
            message, content = taken
            context = message.context
            if context is None:
                self._findings.add_violation(f"{actor.name} got request {content.number} without a context")
                continue

            async def respond(payload: bytes, requester: int = message.sender, context: int = context) -> object:
                return await client.send_response_to_client(requester, context, payload, priority)

            await actor.send(partner.destination, content.stream, content.number, respond)
            await actor.pause()

    @staticmethod
    def _is_requester(actor: Actor) -> bool:
        return actor.identity.index % 2 == 0

    @staticmethod
    def _number(actor: Actor) -> int:
        return actor.identity.index // 2
