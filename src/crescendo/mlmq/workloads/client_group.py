"""How do all clients of one process connect, run and close?

They connect, register and find their queues before the run starts; each then starts at its time in the ramp. At the end
of the run nothing new is started and messages in flight are received; what is still in flight after the drain is
unresolved. Then the account is closed, and the clients are deregistered from the brokers.
"""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Hashable, Iterable
from functools import partial
from typing import Protocol, TypeVar

from crescendo.mlmq.client import RefusedError, SharedLinks, UnansweredError
from crescendo.mlmq.workloads.account import ConservationAccount, ConservationFindings
from crescendo.mlmq.workloads.actor import Actor, ClientIdentity, WorkloadTimes
from crescendo.mlmq.workloads.one_way import OneWay
from crescendo.mlmq.workloads.paired import Paired
from crescendo.mlmq.workloads.public_queue import PublicQueue
from crescendo.mlmq.workloads.recording import WorkloadRecording
from crescendo.mlmq.workloads.simple_send import SimpleSend
from crescendo.model.errors import CrescendoError
from crescendo.model.experiment import Experiment
from crescendo.model.mlmq_clients import QUEUE_KINDS, ClientKind
from crescendo.wire.mlmq.operations import Refusal

R = TypeVar("R")
_POLL_S = 0.05
_MAX_CONCURRENT_CONNECTS = 64
_PREPARE_TIMEOUT_S = 15.0
_CLOSE_TIMEOUT_S = 1.5
_GRACE_NS = 200_000_000


class ClientRole(Protocol):
    """What a client does from start to end."""

    async def run(self, actor: Actor) -> None: ...


class ClientGroup:
    """The clients of one process."""

    def __init__(
        self,
        identities: Iterable[ClientIdentity],
        brokers: list[str],
        tag: int,
        experiment: Experiment,
        recording: WorkloadRecording,
    ) -> None:
        self.findings = ConservationFindings()
        self._experiment = experiment
        self._recording = recording
        self._many_processes = experiment.peers.clients > 1
        shared: set[Hashable] = set()
        if self._many_processes:
            shared = {f"queue {group.queue}" for group in experiment.clients if group.kind in QUEUE_KINDS}
        self.account = ConservationAccount(self.findings, frozenset(shared))
        self._queues: dict[str, PublicQueue] = {}
        self._roles: dict[Hashable, ClientRole] = {}
        self._tag = tag
        self._links: dict[int, SharedLinks] = {}  # by how many clients share a connection
        self.actors = [
            Actor(identity, brokers, tag, recording, self.account, self._links_of(identity)) for identity in identities
        ]
        self._assigned_roles = [(actor, self._role_of(actor)) for actor in self.actors]
        self._times = WorkloadTimes(0, 0, 0, 0)

    async def connect(self) -> None:
        """Connect and register all clients, and create the queues. Raises when a broker refuses or none answers."""
        limit = asyncio.Semaphore(_MAX_CONCURRENT_CONNECTS)

        async def register(actor: Actor) -> None:
            async with limit:
                actor.client.timeout_s = _PREPARE_TIMEOUT_S
                await actor.client.init()
                await _retry_while_shed(actor.client.register)

        await asyncio.gather(*map(register, self.actors))
        for name, queue in self._queues.items():
            created = await _retry_while_shed(partial(self.actors[0].client.create_queue, f"{name}-{self._tag:08x}"))
            queue.id = created.queue

    async def run(self, t0_ns: int, should_stop: Callable[[], bool], each_step: Callable[[int], None]) -> bool:
        """Run until every client has ended. False: stopped early."""
        self._times = self._times_from(t0_ns)
        for actor in self.actors:
            actor.times = self._times
            actor.is_recording = True
        pending = {asyncio.create_task(self._run_role(actor, role)) for actor, role in self._assigned_roles}
        completed = True
        while pending:
            done, pending = await asyncio.wait(pending, timeout=_POLL_S)
            for task in done:
                if not task.cancelled():
                    task.result()  # a bug must not look like an idle client
            now_ns = time.monotonic_ns()
            each_step(now_ns)
            if completed and should_stop():
                completed = False
            if not completed or now_ns > self._times.over_ns + _GRACE_NS:
                for task in pending:
                    task.cancel()
        for queue in self._queues.values():
            queue.close(self._times)
        self.account.close()
        return completed

    async def close(self) -> None:
        """Deregister the clients and delete their queues, as far as that is fast, and disconnect."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_CLOSE_TIMEOUT_S):
                await asyncio.gather(*map(self._deregister, self.actors), return_exceptions=True)
        for actor in self.actors:
            await actor.client.close()
        for links in self._links.values():
            links.close()

    @property
    def connects(self) -> int:
        return sum(actor.client.connects for actor in self.actors)

    async def _deregister(self, actor: Actor) -> None:
        actor.is_recording = False
        actor.client.timeout_s = _CLOSE_TIMEOUT_S
        if actor is self.actors[0] and not self._many_processes:  # other processes may still use the queue
            for queue in self._queues.values():
                await _retry_while_shed(partial(actor.client.delete_queue, queue.id))
        await _retry_while_shed(actor.client.deregister)

    async def _run_role(self, actor: Actor, role: ClientRole) -> None:
        start_ns = self._times.t0_ns + actor.group.begins_ns(actor.identity.index)
        try:
            await asyncio.sleep(max(min(start_ns, self._times.end_ns) - time.monotonic_ns(), 0) / 1e9)
            await role.run(actor)
        except UnansweredError:
            pass  # the deadline has passed; the account knows what was in flight
        except CrescendoError as err:
            self.findings.add_unresolved(f"{actor.name} ended early: {err}")
        finally:
            if isinstance(role, PublicQueue):
                role.ended(actor)

    def _times_from(self, t0_ns: int) -> WorkloadTimes:
        phases = self._experiment.phases
        end_ns = t0_ns + int(phases.warmup) + int(phases.measure.duration or 0)
        # Consumers in other processes wait until producers have given up, and all must end before the drain does.
        return WorkloadTimes(t0_ns, end_ns, end_ns + int(phases.drain) // 2, end_ns + int(phases.drain) * 4 // 5)

    def _links_of(self, identity: ClientIdentity) -> SharedLinks | None:
        """Clients of different groups share connections, too, if their groups agree on how many do."""
        clients = identity.group.per_connection
        if clients == 1:
            return None
        return self._links.setdefault(clients, SharedLinks(clients))

    def _role_of(self, actor: Actor) -> ClientRole:
        group, index = actor.group, actor.identity.index
        if group.kind in QUEUE_KINDS:
            queue = self._queues.get(group.queue)
            if queue is None:
                queue = PublicQueue(group.queue, self.account, self.findings, shared=self._many_processes)
                self._queues[group.queue] = queue
            queue.add(actor)
            return queue
        if group.kind == ClientKind.PAIRED:
            pair = self._roles.setdefault((group.name, index // 2), Paired(self.findings))
            if isinstance(pair, Paired):
                pair.add(actor)
            return pair
        if group.kind == ClientKind.ONE_WAY:
            return self._roles.setdefault(group.name, OneWay(group.name, self.findings, self._experiment.seed))
        return self._roles.setdefault(group.name, SimpleSend(self.findings))


async def _retry_while_shed(request: Callable[[], Awaitable[R]]) -> R:
    """Requests outside the measurement are retried when shed, up to a limit."""
    deadline_s = time.monotonic() + _PREPARE_TIMEOUT_S
    while True:
        try:
            return await request()
        except RefusedError as err:
            if err.reason is not Refusal.OVERLOADED or time.monotonic() > deadline_s:
                raise
            await asyncio.sleep(_POLL_S)
