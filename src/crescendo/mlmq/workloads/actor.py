"""How does one client of a workload send and receive, with every message accounted for?

It sends a message until it is stored: the client library repeats a request without an answer under the same number, and
a shed request is sent again, as a new one, after a pause. It takes messages, reads them, and records when there were
none. A message is accounted for before it is sent. What to send, and to whom, is up to the workload.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass
from time import monotonic_ns
from typing import TypeVar

from crescendo.mlmq.client import (
    AsyncClient,
    Backoff,
    Exchange,
    Message,
    Query,
    RefusedError,
    SharedLinks,
    UnansweredError,
)
from crescendo.mlmq.workloads.account import ConservationAccount
from crescendo.mlmq.workloads.message_content import MessageContent, pack, unpack
from crescendo.mlmq.workloads.recording import WorkloadRecording
from crescendo.model.mlmq_clients import Clients
from crescendo.wire.mlmq.operations import Refusal

R = TypeVar("R")
FAST_BACKOFF = Backoff(first_s=0.01, most_s=0.25)
_SHED_PAUSE_S = 0.01
_IDLE_PAUSE_S = 0.02
_MIN_ATTEMPT_S = 5.0


@dataclass(slots=True)
class WorkloadTimes:
    """When clients start, when they start nothing new, when producers give up, and when all must have ended."""

    t0_ns: int
    end_ns: int
    give_up_ns: int
    over_ns: int


@dataclass(frozen=True)
class ClientIdentity:
    """The group, index and numbers of one client."""

    group: Clients
    index: int  # in its group
    sender: int  # its connection numbers in the recording
    receiver: int
    broker: int

    @property
    def name(self) -> str:
        return f"{self.group.name}-{self.index}"


class Actor:
    """One client of a workload."""

    def __init__(
        self,
        identity: ClientIdentity,
        brokers: list[str],
        tag: int,
        recording: WorkloadRecording,
        account: ConservationAccount,
        links: SharedLinks | None = None,
    ) -> None:
        self.identity = identity
        self.name = self.destination = identity.name  # a client's own queue has its name
        self.times = WorkloadTimes(0, 0, 0, 0)
        self._tag = tag
        self._recording = recording
        self._account = account
        self._sent = 0
        self._timeout_ns = int(identity.group.timeout)
        self.is_recording = False
        self.client = AsyncClient(
            f"{identity.name}-{tag:08x}",
            brokers,
            first_broker=identity.broker,
            # Longer than the timeout that counts: retries on another broker would only add load to a slow system.
            attempt_timeout_s=max(5 * self._timeout_ns / 1e9, _MIN_ATTEMPT_S),
            backoff=FAST_BACKOFF,
            impatient_of={Refusal.OVERLOADED},
            observer=self._observe,
            links=links,
        )

    @property
    def group(self) -> Clients:
        return self.identity.group

    @property
    def draining(self) -> bool:
        """Whether nothing new may be started."""
        return monotonic_ns() >= self.times.end_ns

    async def pause(self) -> None:
        """The wait between two actions, cut short at the end of the run."""
        if self.group.wait:
            left_s = (self.times.end_ns - monotonic_ns()) / 1e9
            await asyncio.sleep(max(min(self.group.wait / 1e9, left_s), 0))

    async def send(
        self,
        destination: Hashable,
        stream: int,
        number: int,
        send_payload: Callable[[bytes], Awaitable[R]],
        *,
        until_ns: int | None = None,
    ) -> R | None:
        """Send until it is stored. None when it was shed until the deadline, so that it is not stored.

        UnansweredError when the outcome is unknown.
        """
        limit_ns = until_ns or self.times.over_ns
        while True:
            content = MessageContent(self.identity.sender, self._sent, monotonic_ns(), stream, number)
            message = content.sender, content.seq
            self._set_timeout(limit_ns)
            self._account.sending(message, destination)
            try:
                answer = await send_payload(pack(content, self._tag, self.group.size))
            except RefusedError as err:
                self._account.refused(message)
                if err.reason is not Refusal.OVERLOADED:
                    raise
                if monotonic_ns() >= limit_ns:
                    return None
                await self._pause_after_shedding()
                continue
            except BaseException:
                self._sent += 1
                self._recording.record_sent(content, self.group.size, None)
                raise
            now_ns = monotonic_ns()
            self._sent += 1
            self._account.stored(message, now_ns)
            self._recording.record_sent(content, self.group.size, now_ns)
            return answer

    async def take(self, query: Query, destination: Hashable) -> tuple[Message, MessageContent] | None:
        """The next new message of this run; None when there was none, or when the broker was overloaded.

        UnansweredError at the deadline.
        """
        asked_ns = monotonic_ns()
        self._set_timeout(self.times.over_ns)
        left_s = max((self.times.end_ns - asked_ns) / 1e9, 0.1)
        try:
            message = await self.client.dequeue_message(query, wait_s=min(self.group.poll / 1e9, left_s))
        except RefusedError as err:
            if err.reason is not Refusal.OVERLOADED:
                raise
            await self._pause_after_shedding()
            return None
        if message is None:
            self._account.empty(destination, asked_ns)
            if self.draining:
                await asyncio.sleep(_IDLE_PAUSE_S)  # idle clients yield to those with work left
            return None
        content = unpack(message.content, self._tag, len(message.content))
        self._recording.record_received(
            self.identity.receiver, content, len(message.content), message.redelivered, monotonic_ns()
        )
        if content is None or not self._account.received(
            (content.sender, content.seq), destination, message.redelivered
        ):
            return None
        return message, content

    async def _pause_after_shedding(self) -> None:
        """With jitter: clients that pause equally would be shed together again."""
        min_pause_s = max(self.group.wait / 1e9, _SHED_PAUSE_S)
        await asyncio.sleep(min_pause_s * random.uniform(0.5, 1.5))  # noqa: S311

    def _set_timeout(self, limit_ns: int) -> None:
        left_s = (limit_ns - monotonic_ns()) / 1e9
        if left_s <= 0:
            raise UnansweredError("the time is over")
        self.client.timeout_s = left_s

    def _observe(self, exchange: Exchange) -> None:
        if self.is_recording:
            self._recording.record_request(self.name, exchange, self._timeout_ns, self.group.breakup)
