"""A kind of system whose program is a few lines of Python, to test how instances handle programs that misbehave."""

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from crescendo.model.errors import PeerError
from crescendo.systems.base import Blueprint, Installation, Launch, SystemSettings
from crescendo.systems.ports import accepts

SERVE = "import socket, time, sys; s = socket.create_server(('127.0.0.1', int(sys.argv[1]))); time.sleep(600)"


class PlainKind:
    """Serves when its port accepts."""

    name = "plain"
    summary = "a program of a few lines"
    settings = SystemSettings
    ports = ("amqp",)
    declares = ()

    def __init__(
        self,
        program: str = SERVE,
        user: str | None = None,
        outside_dir_file: str | None = None,
        *,
        ends_slowly: bool = False,
    ) -> None:
        self._program, self._user, self._outside_dir_file = program, user, outside_dir_file
        self._ends_slowly = ends_slowly

    def find(self, _home: Path | None, _version: str | None) -> Installation:
        return Installation("1", Path(sys.prefix), "given")

    def install(self, _version: str | None, _progress: Callable[[str], None]) -> Installation:
        return self.find(None, None)

    def plan(self, settings: Any, _found: Installation, directory: Path, ports: Mapping[str, int]) -> Blueprint:
        # The system's interpreter: other accounts may not be able to reach that of the virtual environment.
        argv = ("/usr/bin/python3", "-c", self._program, str(ports["amqp"]), str(directory))
        files = {"secret.txt": settings.password, "deep/down/file.txt": "x"}
        url = f"amqp://{settings.user}:{settings.password}@127.0.0.1:{ports['amqp']}"
        return Blueprint(
            files,
            (Launch("program", argv, ends_slowly=self._ends_slowly),),
            {"amqp": url},
            account=self._user,
            outside_dir_file=self._outside_dir_file,
        )

    def probe(self, endpoints: Mapping[str, str], _settings: Any) -> None:
        if not accepts(urlsplit(endpoints["amqp"]).port or 0):
            raise PeerError("no process listens")
