"""How does a request get its answer although connections break and brokers restart?

It is sent again, to the next broker in the list, after a growing pause, until there is an answer or its time is over.
Only for requests that are safe to repeat. Knows nothing about operations except which refusals are transient.
"""

import asyncio
import random
from collections.abc import Collection, Sequence
from time import monotonic
from typing import NamedTuple

from crescendo.mlmq.client.backoff import Backoff
from crescendo.mlmq.client.link import BrokerLink, Reply, connect
from crescendo.mlmq.client.request_errors import OUTCOME_UNKNOWN, UnansweredError
from crescendo.mlmq.client.shared_links import SharedLinks
from crescendo.model.errors import ConfigError, PeerError
from crescendo.wire.mlmq.operations import Refusal, Refused, Request

# A retry may succeed, on another broker or a little later.
TRANSIENT = frozenset({Refusal.OVERLOADED, Refusal.UNAVAILABLE, Refusal.CLOSING, Refusal.INTERNAL})
_CONNECT_TIMEOUT_S = 2.0
_LEAST_TIMEOUT_S = 0.05


class Called(NamedTuple):
    """An answer and how it was reached."""

    reply: Reply
    attempts: int
    has_copies: bool  # an earlier attempt got no answer: a broker may still serve it


class Caller:
    """One client's connection to its brokers: one link at a time, its own or one that it shares."""

    def __init__(
        self,
        brokers: Sequence[str],
        *,
        first: int = 0,
        attempt_timeout_s: float = 2.0,
        backoff: Backoff | None = None,
        wants_times: bool = False,
        patient: bool = True,
        impatient_of: Collection[Refusal] = (),
        links: SharedLinks | None = None,
    ) -> None:
        if not brokers:
            raise ConfigError("brokers: name at least one, for example 127.0.0.1:8099")
        for broker in brokers:
            host, _, port = broker.rpartition(":")
            if not host or not (port.isascii() and port.isdigit()):
                raise ConfigError(f"brokers: {broker!r} is not an address; write host:port, for example 127.0.0.1:8099")
        self._brokers = tuple(brokers)
        self._next = first % len(self._brokers)
        self._attempt_timeout_s = attempt_timeout_s
        self._backoff = backoff or Backoff()
        self._random = random.Random()  # noqa: S311 - jitter, not a secret
        self._wants_times = wants_times
        self._retried = TRANSIENT - frozenset(impatient_of) if patient else frozenset()
        self._shared = None if links is None else (links, links.join())
        self._link: BrokerLink | None = None
        self._connecting: asyncio.Lock | None = None
        self.connects = 0

    @property
    def connected(self) -> bool:
        return self._link is not None and self._link.open

    @property
    def broker(self) -> str | None:
        """The broker we are connected to."""
        return self._link.broker if self._link is not None and self._link.open else None

    async def call(self, request: Request, timeout_s: float, wait_s: float = 0.0) -> Called:
        """The answer, and what it took. `wait_s` is how long the broker may wait before it answers.

        A transient refusal is retried; a permanent one is the answer. UnansweredError when the time is over.
        """
        deadline_s = monotonic() + timeout_s
        attempts = 0
        maybe_served = False  # after a lost attempt, a shed retry does not mean that nothing was done
        last_failure = "no broker was tried"
        while True:
            attempts += 1
            link = self._link
            try:
                if link is None or not link.open:
                    link = await self._connected(deadline_s)
                lost, maybe_served = maybe_served, True
                left_s = max(deadline_s - monotonic(), 0.0)
                reply = await link.ask(request, min(self._attempt_timeout_s + wait_s, left_s))
                refused = reply.answer if isinstance(reply.answer, Refused) else None
                if refused is None or refused.reason not in (TRANSIENT if lost else self._retried):
                    return Called(reply, attempts, lost)
                maybe_served = lost or refused.reason in OUTCOME_UNKNOWN
                last_failure = f"{link.broker}: {refused.reason.name.lower()}: {refused.text}"
                if refused.reason is Refusal.CLOSING:
                    link.close("closed because its broker is shutting down")
            except TimeoutError:
                last_failure = f"{link.broker if link else 'the broker'} did not answer in time"
                if link is not None and monotonic() < deadline_s:
                    link.close("given up: no answer in time")  # its other requests are retried elsewhere, too
            except PeerError as err:
                last_failure = str(err)
            pause_s = self._backoff.pause_s(attempts, self._random)
            if monotonic() + pause_s >= deadline_s:
                raise UnansweredError(
                    f"{type(request).__name__}: no answer within {timeout_s:g} s; last: {last_failure}"
                )
            await asyncio.sleep(pause_s)

    async def connect(self, timeout_s: float) -> None:
        """Connect now rather than with the first request."""
        deadline_s = monotonic() + timeout_s
        failures = 0
        while True:
            try:
                await self._connected(deadline_s)
                return
            except (PeerError, TimeoutError) as err:
                failures += 1
                pause_s = self._backoff.pause_s(failures, self._random)
                if monotonic() + pause_s >= deadline_s:
                    last = str(err) or "another request was still connecting"
                    raise PeerError(f"no broker within {timeout_s:g} s; last: {last}") from err
                await asyncio.sleep(pause_s)

    def close(self) -> None:
        if self._link is not None and self._shared is None:  # others may use one that is shared
            self._link.close()
        self._link = None

    async def _connected(self, deadline_s: float) -> BrokerLink:
        """An open link. TimeoutError at the deadline, which also ends the wait for another request that connects."""
        if self._connecting is None:
            self._connecting = asyncio.Lock()
        left_s = max(deadline_s - monotonic(), _LEAST_TIMEOUT_S)
        # Many requests may find the link broken; one of them reconnects.
        async with asyncio.timeout(left_s), self._connecting:
            if self._link is not None and self._link.open:
                return self._link
            broker = self._brokers[self._next]
            self._next = (self._next + 1) % len(self._brokers)  # the next candidate if this one fails, now or later
            timeout_s = min(_CONNECT_TIMEOUT_S, max(deadline_s - monotonic(), _LEAST_TIMEOUT_S))
            if self._shared is None:
                self._link = await connect(broker, timeout_s, self._wants_times)
            else:
                links, number = self._shared
                self._link = await links.link(number, broker, timeout_s, self._wants_times)
            self.connects += 1
            return self._link
