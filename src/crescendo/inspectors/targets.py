"""Which of a system's URLs does an inspector use?

The first of the endpoints it supports, checked for its scheme. Messages never show the URL, because it may contain a
password.
"""

from crescendo.inspectors.base import InspectionTarget
from crescendo.model import protocols
from crescendo.model.errors import ConfigError
from crescendo.model.urls import parse_url

AMQP, MQTT, MANAGEMENT = protocols.AMQP10.endpoint, protocols.MQTT.endpoint, "management"


def url_of(target: InspectionTarget, kind: str, names: tuple[str, ...], schemes: tuple[str, ...]) -> str:
    """The URL of the first endpoint with one of these names; ConfigError says what to configure instead."""
    cure = f"give it a url such as {schemes[0]}://user:password@host:port"
    for name in names:
        url = target.endpoints.get(name)
        if url is None:
            continue
        try:
            parts = parse_url(url)
            usable = parts.scheme in schemes and bool(parts.host) and parts.port != 0
        except ValueError:  # the port is not a number
            usable = False
        if not usable:
            raise ConfigError(f"inspect: {kind} cannot inspect its {name} url; {cure}")
        return url
    raise ConfigError(f"inspect: {kind} has no {' or '.join(names)} endpoint to inspect; {cure}")
