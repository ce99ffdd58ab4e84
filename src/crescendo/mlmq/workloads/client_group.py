"""How do all clients of one process come together, play their parts and go home?

They connect, register and find their queues before the run begins; each then begins when its turn in the ramp has come.
When the time is over nothing new is begun and what is under way is brought home; what is not home when the drain is
over is left open. Then the books are closed, and the clients are removed from the brokers again.
"""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Hashable, Iterable
from functools import partial
from typing import Protocol, TypeVar

from crescendo.mlmq.client import RefusedError, UnansweredError
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
_STEP_S = 0.05
_TOGETHER = 64  # that connect at the same time
_PREPARE_TIMEOUT_S = 15.0
_LEAVE_TIMEOUT_S = 1.5
_LATE_NS = 200_000_000


class ClientRole(Protocol):
    """What a client does from its beginning to its end."""

    async def live(self, actor: Actor) -> None: ...


class ClientGroup:
    """The clients of one process."""

    def __init__(
        self,
        posts: Iterable[ClientIdentity],
        brokers: list[str],
        tag: int,
        experiment: Experiment,
        recording: WorkloadRecording,
    ) -> None:
        self.findings = ConservationFindings()
        self._experiment = experiment
        self._journal = recording
        self._several = experiment.peers.clients > 1
        shared: set[Hashable] = set()
        if self._several:
            shared = {f"queue {group.queue}" for group in experiment.clients if group.kind in QUEUE_KINDS}
        self.account = ConservationAccount(self.findings, frozenset(shared))
        self._queues: dict[str, PublicQueue] = {}
        self._parts: dict[Hashable, ClientRole] = {}
        self._tag = tag
        self.actors = [Actor(post, brokers, tag, recording, self.account) for post in posts]
        self._playing = [(actor, self._part_of(actor)) for actor in self.actors]
        self._hours = WorkloadTimes(0, 0, 0, 0)

    async def assemble(self) -> None:
        """Connect and register everybody, and find the queues. Raises what a broker refuses, or that none is there."""
        gate = asyncio.Semaphore(_TOGETHER)

        async def enter(actor: Actor) -> None:
            async with gate:
                actor.client.timeout_s = _PREPARE_TIMEOUT_S
                await actor.client.init()
                await _patiently(actor.client.register)

        await asyncio.gather(*map(enter, self.actors))
        for name, queue in self._queues.items():
            made = await _patiently(partial(self.actors[0].client.create_queue, f"{name}-{self._tag:08x}"))
            queue.id = made.queue

    async def perform(self, t0_ns: int, should_stop: Callable[[], bool], each_step: Callable[[int], None]) -> bool:
        """Play until everybody is over. Whether nobody asked to stop before that."""
        self._hours = self._hours_from(t0_ns)
        for actor in self.actors:
            actor.hours = self._hours
            actor.recording = True
        pending = {asyncio.create_task(self._live(actor, part)) for actor, part in self._playing}
        undisturbed = True
        while pending:
            done, pending = await asyncio.wait(pending, timeout=_STEP_S)
            for task in done:
                if not task.cancelled():
                    task.result()  # a fault of ours must not look like a quiet client
            now_ns = time.monotonic_ns()
            each_step(now_ns)
            if undisturbed and should_stop():
                undisturbed = False
            if not undisturbed or now_ns > self._hours.over_ns + _LATE_NS:
                for task in pending:
                    task.cancel()
        for queue in self._queues.values():
            queue.close(self._hours)
        self.account.close()
        return undisturbed

    async def leave(self) -> None:
        """Take the clients and their queues off the brokers, as far as that is quick, and hang up."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LEAVE_TIMEOUT_S):
                await asyncio.gather(*map(self._go, self.actors), return_exceptions=True)
        for actor in self.actors:
            await actor.client.close()

    @property
    def connects(self) -> int:
        return sum(actor.client.connects for actor in self.actors)

    async def _go(self, actor: Actor) -> None:
        actor.recording = False
        actor.client.timeout_s = _LEAVE_TIMEOUT_S
        if actor is self.actors[0] and not self._several:  # others may still be at the queue
            for queue in self._queues.values():
                await _patiently(partial(actor.client.delete_queue, queue.id))
        await _patiently(actor.client.deregister)

    async def _live(self, actor: Actor, part: ClientRole) -> None:
        begins_ns = self._hours.t0_ns + actor.group.begins_ns(actor.post.index)
        try:
            await asyncio.sleep(max(min(begins_ns, self._hours.end_ns) - time.monotonic_ns(), 0) / 1e9)
            await part.live(actor)
        except UnansweredError:
            pass  # the time is over; the account knows what was under way
        except CrescendoError as err:
            self.findings.leave_open(f"{actor.name} ended before its time: {err}")
        finally:
            if isinstance(part, PublicQueue):
                part.ended(actor)

    def _hours_from(self, t0_ns: int) -> WorkloadTimes:
        phases = self._experiment.phases
        end_ns = t0_ns + int(phases.warmup) + int(phases.measure.duration or 0)
        # Consumers in other processes wait until producers have given up, and all must be over before the drain is.
        return WorkloadTimes(t0_ns, end_ns, end_ns + int(phases.drain) // 2, end_ns + int(phases.drain) * 4 // 5)

    def _part_of(self, actor: Actor) -> ClientRole:
        group, index = actor.group, actor.post.index
        if group.kind in QUEUE_KINDS:
            queue = self._queues.get(group.queue)
            if queue is None:
                queue = PublicQueue(group.queue, self.account, self.findings, shared=self._several)
                self._queues[group.queue] = queue
            queue.add(actor)
            return queue
        if group.kind == ClientKind.PAIRED:
            pair = self._parts.setdefault((group.name, index // 2), Paired(self.findings))
            if isinstance(pair, Paired):
                pair.add(actor)
            return pair
        if group.kind == ClientKind.ONE_WAY:
            return self._parts.setdefault(group.name, OneWay(group.name, self.findings, self._experiment.seed))
        return self._parts.setdefault(group.name, SimpleSend(self.findings))


async def _patiently(ask: Callable[[], Awaitable[R]]) -> R:
    """What is not measured may be shed as often as it likes, for as long as anybody would wait."""
    deadline_s = time.monotonic() + _PREPARE_TIMEOUT_S
    while True:
        try:
            return await ask()
        except RefusedError as err:
            if err.reason is not Refusal.OVERLOADED or time.monotonic() > deadline_s:
                raise
            await asyncio.sleep(_STEP_S)
