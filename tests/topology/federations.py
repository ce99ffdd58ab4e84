"""One network with every kind of link that we know between brokers, each with an address of its own."""

import threading
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from crescendo.systems.instance import RunningInstance
from crescendo.topology.graph import Graph
from crescendo.topology.link_fidelity import LinkFidelity
from crescendo.topology.link_proxy import LinkProxy
from crescendo.topology.route_probe import probe_route, route_between

EVERY_LINK = Path(__file__).parents[2] / "experiments/federation/topologies/every-link.yml"


def probe_all(
    graph: Graph,
    running: Mapping[str, RunningInstance],
    ways: Mapping[str, tuple[str, str]],
    messages: int,
    *,
    at_once: int,
    **more: Any,
) -> dict[str, LinkFidelity | str]:
    """What each federation did to messages; the words of an error, where there was one."""

    def probed(name: str) -> LinkFidelity | str:
        try:
            return probe_route(route_between(graph, running, ways[name], name), messages, **more)
        except Exception as err:  # one that fails must not hide the others
            return f"{type(err).__name__}: {err}"

    with ThreadPoolExecutor(at_once) as pool:
        return dict(zip(ways, pool.map(probed, ways), strict=True))


class Scissors:
    """Cuts every link once, when some messages of every federation were sent, and restores them a moment later."""

    def __init__(self, proxies: Iterable[LinkProxy], federations: int, cut_s: float) -> None:
        self._proxies, self._cut_s = list(proxies), cut_s
        self._waiting = threading.Barrier(federations, action=self._cut)
        self._timer: threading.Timer | None = None

    def on_sent(self, after: int) -> Callable[[int], None]:
        def on_sent(count: int) -> None:
            if count == after:
                self._waiting.wait(60)

        return on_sent

    def _cut(self) -> None:
        for proxy in self._proxies:
            proxy.cut()
        self._timer = threading.Timer(self._cut_s, self._restore)
        self._timer.start()

    def _restore(self) -> None:
        for proxy in self._proxies:
            proxy.restore()

    def join(self) -> None:
        if self._timer is not None:
            self._timer.join()
