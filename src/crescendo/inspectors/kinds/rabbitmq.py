"""What does RabbitMQ report about itself?

Its management API: the overview, every node, queue and connection, with message rates, memory and flow control. The
broker refreshes these numbers every few seconds; an inspection does not refresh them.
"""

from typing import Any

from crescendo.inspectors.attributes import add_attributes
from crescendo.inspectors.base import Inspection, InspectionTarget, Reading
from crescendo.inspectors.sources.http import Http
from crescendo.inspectors.targets import MANAGEMENT, url_of
from crescendo.model.errors import PeerError

_DEFAULT_HOST = "/"


class RabbitInspector:
    """Inspects one broker with all its nodes."""

    def __init__(self, target: InspectionTarget) -> None:
        self._http = Http(url_of(target, "rabbitmq", (MANAGEMENT,), ("http", "https")))
        # The URL may be given with or without the path of the API.
        self._api = self._http.path.removesuffix("/api") + "/api"

    def inspect(self) -> Inspection:
        inspection = Inspection()
        overview = self._http.get(f"{self._api}/overview")
        if not isinstance(overview, dict):
            raise PeerError("the management API of RabbitMQ answered with something other than its overview")
        add_attributes(inspection, "overview", overview)
        for node in self._list("nodes"):
            add_attributes(inspection, f"node/{node.get('name', '')}", node)
        for queue in self._list("queues"):
            add_attributes(inspection, f"queue/{_queue_name(queue)}", queue)
        for connection in self._list("connections"):
            self._add_connection(inspection, connection)
        return inspection

    def close(self) -> None:
        self._http.close()

    def _list(self, what: str) -> list[dict[str, Any]]:
        answer = self._http.get(f"{self._api}/{what}")
        if not isinstance(answer, list):
            raise PeerError(f"the management API of RabbitMQ answered with something other than a list of {what}")
        return [item for item in answer if isinstance(item, dict)]

    def _add_connection(self, inspection: Inspection, connection: dict[str, Any]) -> None:
        entity = f"connection/{connection.get('name', '')}"
        add_attributes(inspection, entity, connection)
        state = connection.get("state")
        if isinstance(state, str):
            # Flow control is a text; as numbers it can be plotted over time.
            inspection.readings.append(Reading(entity, "flow", float(state == "flow")))
            inspection.readings.append(Reading(entity, "blocked", float(state in {"blocked", "blocking"})))


def _queue_name(queue: dict[str, Any]) -> str:
    host, name = queue.get("vhost", _DEFAULT_HOST), queue.get("name", "")
    return str(name) if host == _DEFAULT_HOST else f"{host}/{name}"
