"""How is the Apache Qpid Dispatch router started, and its successor, the Skupper router?

In the foreground, from its own configuration file, with one listener. It stores no messages,
so it has neither queues nor a store: names given as queues are balanced addresses (one receiver per message), topics
are multicast addresses (every receiver). The router must be on the machine already: no package registry has it.
"""

import re
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Literal

import msgspec

from crescendo.client.amqp10 import pass_a_message
from crescendo.model.errors import ConfigError
from crescendo.systems.base import AMQP, MANAGEMENT, Blueprint, Installation, Launch, SystemSettings
from crescendo.systems.install.packages import find_command, packaged_installation
from crescendo.systems.settings import endpoint, refuse
from crescendo.systems.templates import render

PROBE_ADDRESS = "crescendo.proof"
PROBE_TIMEOUT_S = 5.0
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_./-]{0,199}")


class DispatchSettings(SystemSettings, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Settings of the router: `threads` are its worker threads, `queues` are balanced addresses."""

    user: str = ""
    persistence: bool = False
    mode: Literal["standalone", "interior"] = "standalone"
    id: str = "crescendo"
    topics: list[str] = msgspec.field(default_factory=list)

    def __post_init__(self) -> None:
        no_accounts = "the router accepts every client, because its passwords need a Cyrus SASL database; leave it out"
        refuse(
            self,
            user=no_accounts,
            password=no_accounts,
            persistence="a router stores no messages; leave it out",
            memory="a router has no memory limit; leave it out",
            tls="a router that we start listens without TLS; give the url of one that has it, or leave it out",
        )
        for key, names in (("id", [self.id]), ("queues", self.queues), ("topics", self.topics)):
            for name in names:
                if _NAME.fullmatch(name) is None:
                    raise ValueError(f"{key}: {name!r} has characters other than letters, digits and any of . _ / -")
        for name in set(self.queues) & set(self.topics):
            raise ValueError(f"topics: {name!r} is already a queue")


class Dispatch:
    """The router, where it is installed. `command` is also its package for dpkg; without dpkg the origin is "given"."""

    settings: type[SystemSettings] = DispatchSettings
    ports = (AMQP,)
    declares = ("queues", "topics")

    def __init__(self, name: str, command: str, summary: str, source: str) -> None:
        self.name, self.package, self.summary = name, command, summary
        self._command, self._file = command, f"{command}.conf"
        self._cure = f"{source}, or point --home to where it was built"

    def find(self, home: Path | None, version: str | None) -> Installation:
        program = self._program(home)
        try:
            answer = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=20, check=False)
        except (OSError, subprocess.TimeoutExpired) as err:
            raise ConfigError(f"{program} cannot be run: {err}; {self._cure}") from err
        match = re.search(r"\d+\.\d+[0-9A-Za-z.-]*", answer.stdout)
        if answer.returncode != 0 or match is None:
            reason = (answer.stderr.strip().splitlines() or ["it does not print its version"])[-1]
            raise ConfigError(f"{program} does not work: {reason[:200]}; {self._cure}")
        return packaged_installation(
            self.name, self.package, program, found=match[0], wanted=version, given=home is not None
        )

    def install(self, version: str | None, progress: Callable[[str], None]) -> Installation:
        return self.find(None, version)

    def plan(
        self, settings: DispatchSettings, installation: Installation, directory: Path, ports: Mapping[str, int]
    ) -> Blueprint:
        launch = Launch(
            name=self.name,
            argv=(str(installation.home), "--config", f"{directory}/{self._file}"),
            env={"PYTHONDONTWRITEBYTECODE": "1"},  # its Python part would write into the shared installation
        )
        url = endpoint(AMQP, settings, ports[AMQP])
        return Blueprint(
            files={self._file: render("qdrouterd.conf", settings=settings, port=ports[AMQP])},
            launches=(launch,),
            endpoints={AMQP: url, MANAGEMENT: url},
        )

    def probe(self, endpoints: Mapping[str, str], settings: SystemSettings) -> None:
        pass_a_message(endpoints[AMQP], PROBE_ADDRESS, PROBE_TIMEOUT_S)

    def _program(self, home: Path | None) -> Path:
        if home is not None:
            for program in (home / "sbin" / self._command, home / "bin" / self._command):
                if program.is_file():
                    return program.absolute()
            raise ConfigError(f"there is no sbin/{self._command} in {home}; {self._cure}")
        found = find_command(self._command)
        if found is None:
            raise ConfigError(f"there is no {self._command} on the PATH; {self._cure}")
        return found.absolute()


QPID_DISPATCH = Dispatch(
    "qpid-dispatch",
    "qdrouterd",
    "Apache Qpid Dispatch: an AMQP 1.0 router",
    "install the package qpid-dispatch-router (EPEL 8) or build apache/qpid-dispatch",
)
SKUPPER_ROUTER = Dispatch(
    "skupper-router",
    "skrouterd",
    "Skupper router: the successor of Apache Qpid Dispatch",
    "build skupperproject/skupper-router",
)
