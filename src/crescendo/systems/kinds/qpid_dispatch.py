"""How is the Apache Qpid Dispatch router started?

In the foreground, from a configuration file of its own, with one listener on the loopback interface. It keeps no
messages, so it has neither queues nor a store: names given as queues or topics are addresses whose messages go to one
of their receivers or to all. It is taken from the machine as it is, because its project publishes no binaries.
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
from crescendo.systems.install.packages import check_version, command, package_version
from crescendo.systems.settings import endpoint, refuse
from crescendo.systems.templates import render

PROOF = "crescendo.proof"
PROOF_TIMEOUT_S = 5.0
CURE = (
    "install the package qpid-dispatch-router (Fedora, EPEL) or qdrouterd (Ubuntu up to 20.04), "
    "or point --home to where it was built"
)
_PACKAGE = "qdrouterd"  # its name where dpkg is asked; elsewhere the origin is what was found
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_./-]{0,199}")


class DispatchSettings(SystemSettings, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What may be set about a router: `threads` are its worker threads, `queues` balanced addresses."""

    user: str = ""
    persistence: bool = False
    mode: Literal["standalone", "interior"] = "standalone"
    id: str = "crescendo"
    topics: list[str] = msgspec.field(default_factory=list)

    def __post_init__(self) -> None:
        nobody = "the router lets everybody in, because its passwords live in a database of Cyrus SASL; leave it out"
        refuse(
            self,
            user=nobody,
            password=nobody,
            persistence="a router keeps no messages; leave it out",
            memory="a router has no limit of memory to set; leave it out",
            tls="a router of ours listens without TLS; give the url of one that has it, or leave it out",
        )
        for key, names in (("id", [self.id]), ("queues", self.queues), ("topics", self.topics)):
            for name in names:
                if _NAME.fullmatch(name) is None:
                    raise ValueError(f"{key}: {name!r} has characters other than letters, digits and any of . _ / -")
        for name in set(self.queues) & set(self.topics):
            raise ValueError(f"topics: {name!r} is a queue already")


class Dispatch:
    """The router, where the machine has it."""

    name = "qpid-dispatch"
    summary = "Apache Qpid Dispatch: an AMQP 1.0 router"
    settings: type[SystemSettings] = DispatchSettings
    ports = (AMQP,)
    declares = ("queues", "topics")

    def find(self, home: Path | None, version: str | None) -> Installation:
        program = _program(home)
        try:
            answer = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=20, check=False)
        except (OSError, subprocess.TimeoutExpired) as err:
            raise ConfigError(f"{program} cannot be run: {err}; {CURE}") from err
        match = re.search(r"\d+\.\d+[0-9A-Za-z.-]*", answer.stdout)
        if answer.returncode != 0 or match is None:
            complaint = (answer.stderr.strip().splitlines() or ["it does not say its version"])[-1]
            raise ConfigError(f"{program} does not work: {complaint[:200]}; {CURE}")
        check_version(self.name, match[0], version)
        packaged = package_version(_PACKAGE) if home is None else None
        origin = f"package {_PACKAGE} {packaged}" if packaged else "given"
        return Installation(version=match[0], home=program, origin=origin)

    def install(self, version: str | None, progress: Callable[[str], None]) -> Installation:
        return self.find(None, version)

    def plan(
        self, settings: DispatchSettings, installation: Installation, directory: Path, ports: Mapping[str, int]
    ) -> Blueprint:
        launch = Launch(
            name=self.name,
            argv=(str(installation.home), "--config", f"{directory}/qdrouterd.conf"),
            env={"PYTHONDONTWRITEBYTECODE": "1"},  # its Python part would write beside itself, where others live too
        )
        url = endpoint(AMQP, settings, ports[AMQP])
        return Blueprint(
            files={"qdrouterd.conf": render("qdrouterd.conf", settings=settings, port=ports[AMQP])},
            launches=(launch,),
            endpoints={AMQP: url, MANAGEMENT: url},
        )

    def probe(self, endpoints: Mapping[str, str], settings: SystemSettings) -> None:
        pass_a_message(endpoints[AMQP], PROOF, PROOF_TIMEOUT_S)


def _program(home: Path | None) -> Path:
    if home is not None:
        for place in (home / "sbin" / "qdrouterd", home / "bin" / "qdrouterd"):
            if place.is_file():
                return place.absolute()
        raise ConfigError(f"there is no sbin/qdrouterd in {home}; {CURE}")
    found = command("qdrouterd")
    if found is None:
        raise ConfigError(f"there is no qdrouterd on the PATH; {CURE}")
    return found.absolute()


QPID_DISPATCH = Dispatch()
