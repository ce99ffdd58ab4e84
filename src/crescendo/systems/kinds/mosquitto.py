"""How is Mosquitto configured, and when does it serve?

One user, one listener; it serves when it delivers a message that we publish. MQTT only: it
has one thread and no queues to declare.
"""

import base64
import hashlib
import re
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any

import paho.mqtt.client as mqtt
from msgspec import Meta
from paho.mqtt.enums import CallbackAPIVersion, MQTTErrorCode

from crescendo.model.errors import ConfigError, PeerError
from crescendo.model.protocols import secure_schemes
from crescendo.model.urls import parse_url
from crescendo.systems import base
from crescendo.systems.base import MQTT, Blueprint, Installation, Launch
from crescendo.systems.install import packages
from crescendo.systems.instance_dir import DATA
from crescendo.systems.ports import HOST
from crescendo.systems.settings import endpoint, refuse
from crescendo.systems.tls import CA, CERTIFICATE, KEY, secure_endpoints

PACKAGE = "mosquitto"
_CONFIGURATION, _PASSWORDS = "mosquitto.conf", "passwords"
_ITERATIONS = 101  # the default of mosquitto_passwd
_PROBE_TOPIC, _PROBE_TIMEOUT_S = "crescendo/proof", 2.0
_VERSION = re.compile(r"version (\d+(?:\.\d+)+)")


class MosquittoSettings(base.SystemSettings, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Settings of Mosquitto. It drops messages beyond `queued` for a slow subscriber; 0 means no limit."""

    inflight: Annotated[int, Meta(ge=0, le=65_535)] = 20
    queued: Annotated[int, Meta(ge=0)] = 1000

    def __post_init__(self) -> None:
        refuse(
            self,
            threads="mosquitto runs on one thread; leave it out",
            queues="mosquitto has topics only, and creates them on first use; leave it out",
        )
        if not self.user or re.search(r"[:\s\x00]", self.user):
            raise ValueError("user: mosquitto needs a name without colons and spaces")
        if self.secure is not None and self.secure.client_certificates == "optional":
            raise ValueError(
                "tls: mosquitto requires a certificate from every client or from none; write required, or nothing"
            )


class Mosquitto:
    """Mosquitto as a kind of system."""

    name = "mosquitto"
    package = PACKAGE
    summary = "Eclipse Mosquitto, an MQTT broker in C"
    settings = MosquittoSettings
    ports = (MQTT,)
    declares = ()

    def find(self, home: Path | None, version: str | None) -> Installation:
        program = home / "mosquitto" if home is not None else packages.find_command("mosquitto")
        if program is None:
            raise ConfigError(f"mosquitto is not installed; {packages.how_to_install(self.name, PACKAGE)}")
        if not program.is_file():
            raise ConfigError(f"there is no program called mosquitto in {home}; --home names its directory")
        return packages.packaged_installation(
            self.name, PACKAGE, program.parent, found=_version_of(program), wanted=version, given=home is not None
        )

    def install(self, version: str | None, progress: Callable[[str], None]) -> Installation:
        return packages.find_or_install(self.find, PACKAGE, version, progress)

    def plan(
        self, settings: MosquittoSettings, installation: Installation, directory: Path, ports: Mapping[str, int]
    ) -> Blueprint:
        files = {
            _CONFIGURATION: _configuration(settings, directory, ports),
            _PASSWORDS: f"{settings.user}:{_hashed(settings.password or '', directory)}\n",
        }
        argv = (str(installation.home / "mosquitto"), "-c", str(directory / _CONFIGURATION))
        endpoints = {MQTT: endpoint(MQTT, settings, ports[MQTT]), **secure_endpoints(settings, directory, ports)}
        return Blueprint(files, (Launch(self.name, argv),), endpoints, frozenset({_PASSWORDS}))

    def probe(self, endpoints: Mapping[str, str], _settings: MosquittoSettings) -> None:
        parts = parse_url(endpoints[MQTT])
        client = mqtt.Client(CallbackAPIVersion.VERSION2)
        client.username_pw_set(parts.user or "", parts.password or "")
        try:
            client.connect(parts.host or HOST, parts.port or 0)
            _pass_message(client)
        except OSError as err:
            raise PeerError(f"mosquitto does not listen on port {parts.port}: {err.strerror}") from err
        finally:
            client.disconnect()


def _pass_message(client: mqtt.Client) -> None:
    received: list[mqtt.MQTTMessage] = []

    def subscribe(*_: Any) -> None:
        client.subscribe(_PROBE_TOPIC, qos=1)

    def publish(*_: Any) -> None:
        client.publish(_PROBE_TOPIC, b"proof", qos=1)

    def on_message(_client: mqtt.Client, _userdata: Any, message: mqtt.MQTTMessage) -> None:
        received.append(message)

    client.on_connect, client.on_subscribe, client.on_message = subscribe, publish, on_message
    deadline_s = time.monotonic() + _PROBE_TIMEOUT_S
    while not received:
        if client.loop(0.1) is not MQTTErrorCode.MQTT_ERR_SUCCESS or time.monotonic() > deadline_s:
            raise PeerError("mosquitto did not deliver the probe message")


def _configuration(settings: MosquittoSettings, directory: Path, ports: Mapping[str, int]) -> str:
    lines = [
        f"listener {ports[MQTT]} {settings.listen}",
        "allow_anonymous false",
        f"password_file {directory / _PASSWORDS}",
        f"persistence {'true' if settings.persistence else 'false'}",
        f"persistence_location {directory / DATA}/",
        f"max_inflight_messages {settings.inflight}",
        f"max_queued_messages {settings.queued}",
        "sys_interval 1",
        "log_dest stdout",
        "user root",  # keep our account, even root: only we can read the directory
    ]
    if settings.memory is not None:
        lines.append(f"memory_limit {int(settings.memory)}")
    if settings.secure is not None:
        lines += [
            f"listener {ports[secure_schemes()[MQTT]]} {settings.listen}",
            f"cafile {directory / CA}",
            f"certfile {directory / CERTIFICATE}",
            f"keyfile {directory / KEY}",
            f"require_certificate {'true' if settings.secure.client_certificates else 'false'}",
        ]
    return "\n".join(lines) + "\n"


def _hashed(password: str, directory: Path) -> str:
    """PBKDF2 with SHA-512, as mosquitto_passwd writes it. The salt is derived from the directory: plan is pure."""
    salt = hashlib.sha256(str(directory).encode()).digest()[:12]
    digest = hashlib.pbkdf2_hmac("sha512", password.encode(), salt, _ITERATIONS)
    return f"$7${_ITERATIONS}${base64.b64encode(salt).decode()}${base64.b64encode(digest).decode()}"


def _version_of(program: Path) -> str:
    try:
        answer = subprocess.run([program, "-h"], capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired) as err:
        raise ConfigError(f"{program} cannot be run: {err}") from err
    match = _VERSION.search(answer.stdout)
    if match is None:
        raise ConfigError(f"{program} does not print its version; is it mosquitto?")
    return match[1]


MOSQUITTO = Mosquitto()
