"""What does RabbitMQ say about itself?

Its management API: the overview, every node, queue and connection, with message rates, memory and flow control. The
broker refreshes these numbers by itself every few seconds; a look does not make them newer.
"""

from typing import Any

from crescendo.inspectors.attributes import take
from crescendo.inspectors.base import Inspection, InspectionTarget, Reading
from crescendo.inspectors.sources.http import Http
from crescendo.inspectors.targets import MANAGEMENT, url_of
from crescendo.model.errors import PeerError

_DEFAULT_HOST = "/"


class RabbitInspector:
    """Looks at one broker, all its nodes included."""

    def __init__(self, target: InspectionTarget) -> None:
        self._http = Http(url_of(target, "rabbitmq", (MANAGEMENT,), ("http", "https")))
        # People give the URL with or without the API's own path.
        self._api = self._http.path.removesuffix("/api") + "/api"

    def inspect(self) -> Inspection:
        look = Inspection()
        overview = self._http.get(f"{self._api}/overview")
        if not isinstance(overview, dict):
            raise PeerError("the management API of RabbitMQ answered with something else than its overview")
        take(look, "overview", overview)
        for node in self._list("nodes"):
            take(look, f"node/{node.get('name', '')}", node)
        for queue in self._list("queues"):
            take(look, f"queue/{_named(queue)}", queue)
        for connection in self._list("connections"):
            self._take_connection(look, connection)
        return look

    def close(self) -> None:
        self._http.close()

    def _list(self, what: str) -> list[dict[str, Any]]:
        answer = self._http.get(f"{self._api}/{what}")
        if not isinstance(answer, list):
            raise PeerError(f"the management API of RabbitMQ answered with something else than a list of {what}")
        return [item for item in answer if isinstance(item, dict)]

    def _take_connection(self, look: Inspection, connection: dict[str, Any]) -> None:
        entity = f"connection/{connection.get('name', '')}"
        take(look, entity, connection)
        state = connection.get("state")
        if isinstance(state, str):
            # A connection that is held back says so in words; as numbers it can be drawn over time.
            look.readings.append(Reading(entity, "flow", float(state == "flow")))
            look.readings.append(Reading(entity, "blocked", float(state in {"blocked", "blocking"})))


def _named(queue: dict[str, Any]) -> str:
    host, name = queue.get("vhost", _DEFAULT_HOST), queue.get("name", "")
    return str(name) if host == _DEFAULT_HOST else f"{host}/{name}"
