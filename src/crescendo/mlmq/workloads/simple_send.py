"""How does one client alone send so many messages, and take them back?

All of them to its own queue, one after the other, then all of them out again: nobody else is in the way, so what a send
takes and what a receive takes stand apart. They come back in the order in which they left.
"""

from crescendo.mlmq.client import Query
from crescendo.mlmq.workloads.account import ConservationFindings
from crescendo.mlmq.workloads.actor import Actor


class SimpleSend:
    """What each client of such a group does."""

    def __init__(self, findings: ConservationFindings) -> None:
        self._findings = findings

    async def live(self, actor: Actor) -> None:
        sent = await self._send(actor)
        query, due = Query(queue=actor.client.own_queue), 0
        while due < sent:
            taken = await actor.take(query, actor.place)
            await actor.pause()
            if taken is None:
                continue
            if taken[1].number != due:
                self._findings.violate(f"{actor.name} got its message {taken[1].number} where {due} was due")
            due += 1

    @staticmethod
    async def _send(actor: Actor) -> int:
        """How many were stored."""
        client, priority, sent = actor.client, actor.group.priority, 0
        while sent < (actor.group.messages or 0) and not actor.draining:
            stored = await actor.send(
                actor.place,
                actor.post.index,
                sent,
                lambda content: client.send_message_to_client(client.id, content, priority),
            )
            sent += stored is not None
            await actor.pause()
        return sent
