"""How does one client of a workload send and receive, so that nothing it does goes uncounted?

It sends a message until it is stored: a request whose answer is lost is repeated by the client library with the same
number, one that is shed is sent anew after a pause. It takes messages, reads them, and says when there were none. A
message is accounted for before it leaves. What to send, and to whom, is the workload's business.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass
from time import monotonic_ns
from typing import TypeVar

from crescendo.mlmq.client import AsyncClient, Backoff, Exchange, Message, Query, RefusedError, UnansweredError
from crescendo.mlmq.workloads.account import ConservationAccount
from crescendo.mlmq.workloads.message_content import MessageContent, pack, unpack
from crescendo.mlmq.workloads.recording import WorkloadRecording
from crescendo.model.mlmq_clients import Clients
from crescendo.wire.mlmq.operations import Refusal

R = TypeVar("R")
QUICK = Backoff(first_s=0.01, most_s=0.25)
_SHED_PAUSE_S = 0.01
_IDLE_PAUSE_S = 0.02
_LEAST_ATTEMPT_S = 5.0


@dataclass(slots=True)
class WorkloadTimes:
    """When clients begin, when they begin nothing new, until when producers insist, and when all must be over."""

    t0_ns: int
    end_ns: int
    give_up_ns: int
    over_ns: int


@dataclass(frozen=True)
class ClientIdentity:
    """Where a client stands in its run."""

    group: Clients
    index: int  # in its group
    sender: int  # its numbers in the recording
    receiver: int
    broker: int

    @property
    def name(self) -> str:
        return f"{self.group.name}-{self.index}"


class Actor:
    """One client, and what it has under way."""

    def __init__(
        self,
        post: ClientIdentity,
        brokers: list[str],
        tag: int,
        recording: WorkloadRecording,
        account: ConservationAccount,
    ) -> None:
        self.post = post
        self.name = self.place = post.name  # a client's own queue is called by its name
        self.hours = WorkloadTimes(0, 0, 0, 0)
        self._tag = tag
        self._journal = recording
        self._account = account
        self._sent = 0
        self._timeout_ns = int(post.group.timeout)
        self.recording = False
        self.client = AsyncClient(
            f"{post.name}-{tag:08x}",
            brokers,
            first_broker=post.broker,
            # Longer than what counts: who gave up on a slow broker and asked another would add to what makes it slow.
            attempt_timeout_s=max(5 * self._timeout_ns / 1e9, _LEAST_ATTEMPT_S),
            backoff=QUICK,
            impatient_of={Refusal.OVERLOADED},
            observer=self._observe,
        )

    @property
    def group(self) -> Clients:
        return self.post.group

    @property
    def draining(self) -> bool:
        """Whether nothing new may be begun."""
        return monotonic_ns() >= self.hours.end_ns

    async def pause(self) -> None:
        """The wait between two actions, cut short when the time for actions is over."""
        if self.group.wait:
            left_s = (self.hours.end_ns - monotonic_ns()) / 1e9
            await asyncio.sleep(max(min(self.group.wait / 1e9, left_s), 0))

    async def send(
        self,
        place: Hashable,
        stream: int,
        number: int,
        how: Callable[[bytes], Awaitable[R]],
        *,
        until_ns: int | None = None,
    ) -> R | None:
        """Send until it is stored. None when it was shed until the time was over, so that it is not stored.

        UnansweredError when nobody knows.
        """
        limit_ns = until_ns or self.hours.over_ns
        while True:
            parcel = MessageContent(self.post.sender, self._sent, monotonic_ns(), stream, number)
            message = parcel.sender, parcel.seq
            self._allow(limit_ns)
            self._account.sending(message, place)
            try:
                answer = await how(pack(parcel, self._tag, self.group.size))
            except RefusedError as err:
                self._account.refused(message)
                if err.reason is not Refusal.OVERLOADED:
                    raise
                if monotonic_ns() >= limit_ns:
                    return None
                await self._after_shedding()
                continue
            except BaseException:
                self._sent += 1
                self._journal.leave(parcel, self.group.size, None)
                raise
            now_ns = monotonic_ns()
            self._sent += 1
            self._account.stored(message, now_ns)
            self._journal.leave(parcel, self.group.size, now_ns)
            return answer

    async def take(self, query: Query, place: Hashable) -> tuple[Message, MessageContent] | None:
        """The next message of this run that has not come before; None when there was none, or the broker was too busy.

        UnansweredError when the time is over.
        """
        asked_ns = monotonic_ns()
        self._allow(self.hours.over_ns)
        left_s = max((self.hours.end_ns - asked_ns) / 1e9, 0.1)
        try:
            message = await self.client.dequeue_message(query, wait_s=min(self.group.poll / 1e9, left_s))
        except RefusedError as err:
            if err.reason is not Refusal.OVERLOADED:
                raise
            await self._after_shedding()
            return None
        if message is None:
            self._account.empty(place, asked_ns)
            if self.draining:
                await asyncio.sleep(_IDLE_PAUSE_S)  # who has nothing left to do leaves the way to those who have
            return None
        parcel = unpack(message.content, self._tag, len(message.content))
        self._journal.arrive(self.post.receiver, parcel, len(message.content), message.redelivered, monotonic_ns())
        if parcel is None or not self._account.received((parcel.sender, parcel.seq), place, message.redelivered):
            return None
        return message, parcel

    async def _after_shedding(self) -> None:
        """Never the same pause for all: they would be shed together again."""
        least_s = max(self.group.wait / 1e9, _SHED_PAUSE_S)
        await asyncio.sleep(least_s * random.uniform(0.5, 1.5))  # noqa: S311

    def _allow(self, limit_ns: int) -> None:
        left_s = (limit_ns - monotonic_ns()) / 1e9
        if left_s <= 0:
            raise UnansweredError("the time is over")
        self.client.timeout_s = left_s

    def _observe(self, exchange: Exchange) -> None:
        if self.recording:
            self._journal.request(self.name, exchange, self._timeout_ns, self.group.breakup)
