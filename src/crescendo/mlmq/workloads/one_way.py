"""How does a token travel?

Each client sends one token to another, and sends on whatever comes, to a client chosen by chance, with the counter one
higher. When the time is over tokens stay where they arrive, and the relay is over when none is on its way.
"""

import asyncio
import random

from crescendo.mlmq.client import Query
from crescendo.mlmq.workloads.account import ConservationFindings
from crescendo.mlmq.workloads.actor import Actor
from crescendo.mlmq.workloads.counters import RelayCounter

_ALONE_S = 0.02


class OneWay:
    """The relay among the clients of one group in one process."""

    def __init__(self, name: str, findings: ConservationFindings, seed: int) -> None:
        self._relay = RelayCounter(name, findings)
        self._active: list[Actor] = []
        self._chance = random.Random(f"{name}-{seed}")  # noqa: S311 - the same seed sends tokens the same ways

    async def live(self, actor: Actor) -> None:
        self._active.append(actor)
        while len(self._active) < 2 and not actor.draining:
            await asyncio.sleep(_ALONE_S)
        if actor.draining:
            return
        await self._send_on(actor, actor.post.index)
        query = Query(queue=actor.client.own_queue)
        while self._relay.away or not actor.draining:
            await actor.pause()
            taken = await actor.take(query, actor.place)
            if taken is None or not self._relay.arrives(taken[1].stream, taken[1].number):
                continue
            await actor.pause()
            if not actor.draining:
                await self._send_on(actor, taken[1].stream)

    async def _send_on(self, actor: Actor, token: int) -> None:
        # The own place in the list is skipped without making a list of the others.
        at = self._chance.randrange(len(self._active) - 1)
        target = self._active[at] if self._active[at] is not actor else self._active[-1]
        client, priority = actor.client, actor.group.priority
        hop = self._relay.leaves(token)
        stored = await actor.send(
            target.place, token, hop, lambda content: client.send_message_to_client(target.client.id, content, priority)
        )
        if stored is None:
            self._relay.stays(token)
