"""The toy queue as a system that Crescendo starts, and the inspector that watches it."""

import json
import socket
import struct
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from crescendo.inspectors.base import Inspection, InspectionTarget, Reading
from crescendo.inspectors.targets import MANAGEMENT, url_of
from crescendo.model.errors import PeerError
from crescendo.systems.base import Blueprint, Installation, Launch, SystemSettings
from crescendo.systems.settings import endpoint, refuse
from crescendo_toy.server import HEAD, Kind, frame

TOY = "toy"
"""The protocol, the scheme of its URLs and the endpoint have one name."""

_TIMEOUT_S = 2.0


class ToySettings(SystemSettings, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Refuses what the toy queue cannot do."""

    user: str = ""
    persistence: bool = False

    def __post_init__(self) -> None:
        names = ("user", "password", "persistence", "memory", "threads", "queues", "tls")
        refuse(self, **dict.fromkeys(names, "the toy queue has no such setting; leave it out"))


class ToyQueue:
    """A kind of system."""

    name = "toy-queue"
    summary = "a queue in memory of a hundred lines"
    settings = ToySettings
    ports = (TOY,)
    declares = ()

    def find(self, _home: Path | None, _version: str | None) -> Installation:
        return Installation("1.0", Path(__file__).parent, "package crescendo-toy 1.0")

    def install(self, version: str | None, _progress: Callable[[str], None]) -> Installation:
        return self.find(None, version)

    def plan(self, settings: Any, _found: Installation, _directory: Path, ports: Mapping[str, int]) -> Blueprint:
        argv = (sys.executable, "-m", "crescendo_toy.server", str(ports[TOY]))
        return Blueprint({}, (Launch(self.name, argv),), {TOY: endpoint(TOY, settings, ports[TOY])})

    def probe(self, endpoints: Mapping[str, str], _settings: Any) -> None:
        figures(endpoints[TOY])


class ToyInspector:
    """Asks the server for its counters."""

    def __init__(self, target: InspectionTarget) -> None:
        self._url = url_of(target, ToyQueue.name, (TOY, MANAGEMENT), (TOY,))

    def inspect(self) -> Inspection:
        return Inspection([Reading("queues", name, float(value)) for name, value in figures(self._url).items()])

    def close(self) -> None:
        """Every inspection has a connection of its own."""


def figures(url: str) -> dict[str, int]:
    """What the server says about itself. Raises PeerError when it does not answer."""
    parts = urlsplit(url)
    try:
        with socket.create_connection((parts.hostname or "", parts.port or 0), _TIMEOUT_S) as connection:
            connection.sendall(frame(Kind.ASK))
            with connection.makefile("rb") as answer:
                _, length = HEAD.unpack(answer.read(HEAD.size))
                found: dict[str, int] = json.loads(answer.read(length))
    except (OSError, ValueError, struct.error) as err:
        raise PeerError(f"the toy queue does not answer: {err}") from err
    return found


TOY_QUEUE = ToyQueue()
