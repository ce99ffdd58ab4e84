"""How do the clients of a relay pass tokens on?

Each client sends one token to another, and forwards every token it receives to a random client, with the counter one
higher. At the end of the run tokens stay where they arrive, and the relay ends when none is in flight.
"""

import asyncio
import random

from crescendo.mlmq.client import Query
from crescendo.mlmq.workloads.account import ConservationFindings
from crescendo.mlmq.workloads.actor import Actor
from crescendo.mlmq.workloads.counters import RelayCounter

_PEER_POLL_S = 0.02


class OneWay:
    """The relay among the clients of one group in one process."""

    def __init__(self, name: str, findings: ConservationFindings, seed: int) -> None:
        self._relay = RelayCounter(name, findings)
        self._active: list[Actor] = []
        self._random = random.Random(f"{name}-{seed}")  # noqa: S311 - the same seed gives the same routes

    async def run(self, actor: Actor) -> None:
        self._active.append(actor)
        while len(self._active) < 2 and not actor.draining:
            await asyncio.sleep(_PEER_POLL_S)
        if actor.draining:
            return
        await self._forward(actor, actor.identity.index)
        query = Query(queue=actor.client.own_queue)
        while self._relay.in_flight or not actor.draining:
            await actor.pause()
            taken = await actor.take(query, actor.destination)
            if taken is None or not self._relay.check_received(taken[1].stream, taken[1].number):
                continue
            await actor.pause()
            if not actor.draining:
                await self._forward(actor, taken[1].stream)

    async def _forward(self, actor: Actor, token: int) -> None:
        # Skips the actor itself without building a list of the others.
        at = self._random.randrange(len(self._active) - 1)
        target = self._active[at] if self._active[at] is not actor else self._active[-1]
        client, priority = actor.client, actor.group.priority
        hop = self._relay.next_hop(token)
        stored = await actor.send(
            target.destination,
            token,
            hop,
            lambda payload: client.send_message_to_client(target.client.id, payload, priority),
        )
        if stored is None:
            self._relay.undo_hop(token)
