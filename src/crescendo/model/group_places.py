"""Where do the two sides of a group connect to, when they do not use the system of the experiment?

`send_to` and `receive_from` are URLs, or hosts at which the system's URL is meant. Nodes of a topology have names like
hosts; which of the two a name is depends on the experiment. Connects to nothing.
"""

import re

from crescendo.model.protocols import protocol_of, protocol_of_scheme
from crescendo.model.urls import parse_url
from crescendo.model.workload import Group

_HOST = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?(?::[0-9]{1,5})?|\[[0-9A-Fa-f:.]+\](?::[0-9]{1,5})?")
KEYS = {"sender": "send_to", "receiver": "receive_from"}


def place_urls(group: Group, system_url: str | None) -> dict[str, str]:
    """Role -> the URL of the place that the group names for it."""
    places = {role: group.place_of(role) for role in KEYS}
    return {role: _url(group, place, system_url) for role, place in places.items() if place is not None}


def with_place_urls(group: Group, system_url: str | None) -> dict[str, str | None]:
    """The fields of the group, with URLs only."""
    urls = place_urls(group, system_url)
    return {key: urls.get(role) for role, key in KEYS.items()}


def check_place(group: Group, role: str, url: str) -> None:
    """Reject what is neither a URL nor a host, and what this side could not do in the protocol of its URL."""
    place = group.place_of(role) or ""
    if "://" not in place and not _HOST.fullmatch(place):
        raise ValueError("write a URL, a host (host or host:port), or with topology, a node")
    if not group.needs_system:
        raise ValueError(f"the address names the system; remove {KEYS[role]}, or write queue://NAME as the address")
    if parse_url(url).path.strip("/"):
        raise ValueError("virtual hosts cannot be given here; give them in the address")
    group.located_at(url)


def _url(group: Group, place: str, system_url: str | None) -> str:
    """A URL as it is; a host as the system's URL at that host, or in the protocol of the group."""
    if "://" in place:
        return place
    spoken = None if system_url is None else protocol_of_scheme(parse_url(system_url).scheme)
    if system_url is None or spoken is None or spoken.name != group.protocol:
        return f"{protocol_of(group.protocol).scheme}://{place}"
    parts = parse_url(system_url)
    port = "" if parts.port is None or ":" in place else f":{parts.port}"
    return system_url.replace(f"://{parts.authority}", f"://{parts.authority[: -len(parts.server)]}{place}{port}", 1)
