"""Which queues are known to be empty, so that nobody need look?

Every message that is stored makes somebody look: who waits for it here, or else all brokers are told. So after a look
that found nothing a queue holds at most what has arrived since, less what was taken. A dequeue that would wait anyway
may then wait at once: more than half of all looks were such. What comes without being told of (a lease that ends, a
notice that was lost) is found as before, by the poll. Messages that are meant for one client are counted apart, because
others do not see them. Asks no database.
"""

from collections.abc import Callable

from crescendo.wire.mlmq.operations import Dequeue, Messages

_REMEMBERED = 10_000


class EmptyQueues:
    """What one broker knows. `arrivals` tells how many messages have come for a queue, or for one client alone."""

    def __init__(self, arrivals: Callable[[int], int], key_of_client: Callable[[int], int]) -> None:
        self._arrivals = arrivals
        self._key_of = key_of_client
        self._for_all: dict[int, int] = {}  # queue -> it holds nothing for everybody when so many have come
        self._for_one: dict[tuple[int, int], int] = {}  # queue, client -> the same for what is meant for that client

    def before(self, request: Dequeue) -> tuple[int, int]:
        """How many have come until now: read it before the look."""
        return self._arrivals(request.query.queue or 0), self._arrivals(self._key_of(request.client))

    def certain(self, request: Dequeue) -> bool:
        """Whether this request would find nothing."""
        queue, client = request.query.queue, request.client
        if queue is None or queue not in self._for_all:
            return False
        for_all, for_one = self.before(request)
        return for_all <= self._for_all[queue] and for_one <= self._for_one.get((queue, client), -1)

    def looked(self, request: Dequeue, answer: object, before: tuple[int, int]) -> None:
        """What a look found."""
        if not isinstance(answer, Messages):
            return
        query, client = request.query, request.client
        if answer.messages:
            self._taken(answer, client)
        elif query.queue is not None and query.sender is None and query.context is None:
            if len(self._for_one) >= _REMEMBERED:
                self.forget()
            self._for_all[query.queue], self._for_one[query.queue, client] = before

    def forget(self) -> None:
        """Nothing is known any more."""
        self._for_one.clear()
        self._for_all.clear()

    def _taken(self, answer: Messages, client: int) -> None:
        for message in answer.messages:
            if message.delivery > 1:
                continue  # it came back without being told of
            # Never above what has come: of what came through another broker the notice may be on its way.
            if message.receiver is None and message.queue in self._for_all:
                come = self._arrivals(message.queue)
                self._for_all[message.queue] = min(self._for_all[message.queue] + 1, come)
            elif (known := self._for_one.get((message.queue, client))) is not None:
                self._for_one[message.queue, client] = min(known + 1, self._arrivals(self._key_of(client)))
