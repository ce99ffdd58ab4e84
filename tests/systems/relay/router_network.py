"""Relays as routers, each in a thread of the test, so that a test can cut links and stop routers."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from crescendo.systems.ports import choose_ports
from crescendo.systems.relay.router_config import router_config
from crescendo.systems.relay.router_server import RouterServer

TIMEOUT_S = 20.0
Link = tuple[str, str, int]


class RunningRouter:
    """One router."""

    def __init__(self, document: dict[str, Any]) -> None:
        self.server = RouterServer(router_config(document, "test"))
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        try:
            self.server.serve()
        finally:
            self.server.close()

    @property
    def state(self) -> Any:
        return self.server._router.tables.state

    def stop(self) -> None:
        self.server.stopping = True
        self._thread.join(TIMEOUT_S)
        assert not self._thread.is_alive()


class RouterNetwork:
    """Routers that are connected with these costs; the first of two connects to the second."""

    def __init__(self, links: list[Link], **more: Any) -> None:
        self._links = links
        names = sorted({name for a, b, _ in links for name in (a, b)})
        ports = choose_ports([f"{name}/{role}" for name in names for role in ("normal", "inter-router")], {})
        self.ports = {name: ports[f"{name}/normal"] for name in names}
        self.documents = {
            name: {
                "router": [{"id": name, "mode": "interior"}],
                "listener": [{"port": ports[f"{name}/{role}"], "role": role} for role in ("normal", "inter-router")],
                "connector": [{"port": ports[f"{b}/inter-router"], "cost": cost} for a, b, cost in links if a == name],
                **more,
            }
            for name in names
        }
        self.routers: dict[str, RunningRouter] = {}

    def start(self, *names: str) -> None:
        for name in names or self.documents:
            self.routers[name] = RunningRouter(self.documents[name])
        until(lambda: all(self._knows_all_links(router) for router in self.routers.values()))

    def _knows_all_links(self, router: RunningRouter) -> bool:
        """Not only a way to every node: until the cheaper way is known, messages take the other one."""
        links = [(a, b) for a, b, _ in self._links if a in self.routers and b in self.routers]
        return all(router.state._cost(a, b) is not None for a, b in links)

    def stop(self, *names: str) -> None:
        for name in names or list(self.routers):
            self.routers.pop(name).stop()

    def knows(self, router: str, address: str, holders: set[str]) -> bool:
        return set(self.routers[router].state.holders(address)) == holders


@contextmanager
def network(*links: Link, **more: Any) -> Iterator[RouterNetwork]:
    running = RouterNetwork(list(links), **more)
    try:
        running.start()
        yield running
    finally:
        running.stop()


def until(condition: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline_s, "it did not happen in time"
        time.sleep(0.01)
