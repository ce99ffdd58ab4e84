"""How does one request of a client end: with its answer, or with which error?

Adds to the caller what a client needs to know: a refusal is an error, an observer sees every request that ended, and a
request that must not be repeated blindly gets a slot, in time. Knows no method of the client interface.
"""

from collections.abc import Callable
from time import monotonic, monotonic_ns
from typing import Any, TypeVar

from crescendo.mlmq.client.caller import Called, Caller
from crescendo.mlmq.client.exchange import Exchange
from crescendo.mlmq.client.request_errors import RefusedError, UnansweredError
from crescendo.mlmq.client.slots import Slots
from crescendo.model.errors import PeerError
from crescendo.wire.mlmq.operations import MAX_SLOTS, Abandon, Answer, Done, Messages, Once, Refusal, Refused, Request

A = TypeVar("A", bound=Answer)
Observer = Callable[[Exchange], None]
_NO_MESSAGES = Messages()


class Requests:
    """The requests of one client."""

    def __init__(self, caller: Caller, observer: Observer | None) -> None:
        self._caller = caller
        self._observer = observer

    async def exchange(
        self, request: Request, expected: type[A], timeout_s: float, wait_s: float = 0.0,
        done_if_refused: Refusal | None = None,
    ) -> tuple[A, Called]:  # fmt: skip
        """`done_if_refused` is the refusal that a retry gets when a lost attempt has already done the work."""
        started_ns = monotonic_ns()
        called: Called | None = None
        outcome = "unanswered"
        try:
            called = await self._caller.call(request, timeout_s + wait_s, wait_s)
            answer = called.reply.answer
            if isinstance(answer, Refused):
                outcome = answer.reason.name.lower()
                if called.attempts > 1 and done_if_refused is answer.reason and expected is Done:
                    return _expect(expected, Done()), called
                raise RefusedError(answer)
            outcome = "empty" if answer == _NO_MESSAGES else "ok"
            return _expect(expected, answer), called
        finally:
            if self._observer is not None:
                reply, attempts = (called.reply, called.attempts) if called else (None, 0)
                ended_ns = reply.answered_ns if reply else monotonic_ns()
                asked_ns = reply.asked_ns if reply and attempts == 1 else started_ns
                times = reply.times if reply else None
                self._observer(Exchange(type(request).__name__, outcome, asked_ns, ended_ns, attempts, times))

    async def acquire(self, slots: Slots, client: int, kind: str, deadline_s: float) -> Once:
        """A slot for a new request, in time. Dequeues that were abandoned long ago give theirs up for it."""
        if given_up := slots.give_up_oldest():
            try:
                await self.exchange(Abandon(client, given_up), Done, deadline_s - monotonic())
            except BaseException:
                slots.still_to_give_up(given_up)
                raise
            for once in given_up:
                slots.release(once)
        try:
            return await slots.acquire(deadline_s - monotonic())
        except TimeoutError:
            raise UnansweredError(f"{kind}: none of {MAX_SLOTS} requests in flight was answered in time") from None


def _expect(expected: type[A], answer: Any) -> A:
    if not isinstance(answer, expected):
        raise PeerError(f"the broker answered {type(answer).__name__} instead of {expected.__name__}")
    return answer
