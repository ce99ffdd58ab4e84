"""How do many clients of one process use few connections?

A client that has a connection of its own pays for it with every request: one write and one read on each side. Clients
that share one write together what they request together, and read their answers together. A connection that is lost is
replaced once for all of its clients. Which broker to try, and when again, is up to each client.
"""

import asyncio

from crescendo.mlmq.client.link import BrokerLink, connect
from crescendo.model.errors import ConfigError
from crescendo.model.mlmq_clients import MAX_PER_CONNECTION


class SharedLinks:
    """The connections of one process, each for a number of clients."""

    def __init__(self, clients: int) -> None:
        if not 1 <= clients <= MAX_PER_CONNECTION:
            raise ConfigError(f"{clients} clients: 1 to {MAX_PER_CONNECTION} can share a connection")
        self._clients = clients
        self._joined = 0
        self._links: dict[tuple[int, str, bool], BrokerLink] = {}
        self._connecting: dict[tuple[int, str, bool], asyncio.Lock] = {}

    def join(self) -> int:
        """The number of the connection that one more client uses."""
        number, self._joined = self._joined // self._clients, self._joined + 1
        return number

    async def link(self, number: int, broker: str, timeout_s: float, wants_times: bool) -> BrokerLink:
        """That connection to this broker, which may have to be made. PeerError if it cannot."""
        key = number, broker, wants_times
        async with self._connecting.setdefault(key, asyncio.Lock()):
            found = self._links.get(key)
            if found is None or not found.open:
                found = self._links[key] = await connect(broker, timeout_s, wants_times)
            return found

    @property
    def open(self) -> int:
        """How many connections are open."""
        return sum(link.open for link in self._links.values())

    def close(self) -> None:
        for link in self._links.values():
            link.close()
        self._links.clear()
