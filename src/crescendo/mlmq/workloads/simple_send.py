"""How does one client alone send N messages and take them back?

All of them to its own queue, one after the other, then all of them out again: no other client interferes, so the cost
of a send and the cost of a receive are separate. They must be received in the order in which they were sent.
"""

from crescendo.mlmq.client import Query
from crescendo.mlmq.workloads.account import ConservationFindings
from crescendo.mlmq.workloads.actor import Actor


class SimpleSend:
    """The role of each client of such a group."""

    def __init__(self, findings: ConservationFindings) -> None:
        self._findings = findings

    async def run(self, actor: Actor) -> None:
        sent = await self._send(actor)
        query, due = Query(queue=actor.client.own_queue), 0
        while due < sent:
            taken = await actor.take(query, actor.destination)
            await actor.pause()
            if taken is None:
                continue
            if taken[1].number != due:
                self._findings.add_violation(f"{actor.name} received message {taken[1].number}, expected {due}")
            due += 1

    @staticmethod
    async def _send(actor: Actor) -> int:
        """Send all messages; returns how many were stored."""
        client, priority, sent = actor.client, actor.group.priority, 0
        while sent < (actor.group.messages or 0) and not actor.draining:
            stored = await actor.send(
                actor.destination,
                actor.identity.index,
                sent,
                lambda payload: client.send_message_to_client(client.id, payload, priority),
            )
            sent += stored is not None
            await actor.pause()
        return sent
