"""Are these settings such that this kind of system can honour every one of them?

A person's words become the kind's own settings value, or a sentence that names the key and the cure. Nothing is
ignored: what a kind cannot do, it refuses.
"""

import difflib
import re
import secrets
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

import msgspec

from crescendo.model.errors import ConfigError
from crescendo.model.units import format_unit, parse_unit
from crescendo.systems.base import AMQP, AMQP091, MLMQ, MQTT, STOMP, SystemKind, SystemSettings
from crescendo.systems.ports import HOST

PROTOCOLS = (AMQP, AMQP091, STOMP, MQTT, MLMQ)
_PATH = re.compile(r"^(?P<what>.*?)(?: - at `\$\.?(?P<path>[^`]*)`)?$", re.DOTALL)


def protocols_of(kind: SystemKind) -> tuple[str, ...]:
    """What it speaks: every protocol has a port of its own name."""
    return tuple(name for name in PROTOCOLS if name in kind.ports)


def settings_of(kind: SystemKind, given: Mapping[str, Any]) -> SystemSettings:
    """The settings of one instance, checked, with a password that nobody else knows where none was given."""
    known = [field.name for field in msgspec.structs.fields(kind.settings)]
    for key in given:
        if key not in known:
            near = difflib.get_close_matches(str(key), known, n=1)
            hint = f"did you mean {near[0]}? " if near else ""
            raise ConfigError(
                f"system.settings.{key}: {kind.name} knows no such setting; {hint}known: {', '.join(known)}"
            )
    try:
        settings = msgspec.convert(dict(given), kind.settings, dec_hook=parse_unit)
    except msgspec.ValidationError as err:
        raise ConfigError(_sentence(str(err))) from err
    _check_protocols(kind, settings)
    if settings.password is None and settings.user:
        settings = msgspec.structs.replace(settings, password=secrets.token_urlsafe(12))
    return settings


def refuse(settings: SystemSettings, **reasons: str) -> None:
    """For a kind's `__post_init__`: refuse what was set to something else than its default, and say why."""
    defaults = {field.name: field.default for field in msgspec.structs.fields(type(settings))}
    for name, why in reasons.items():
        value = getattr(settings, name)
        unset = not value if isinstance(value, list) else value == defaults[name]
        if not unset:
            raise ValueError(f"{name}: {why}")


def speaks(settings: SystemSettings, protocol: str) -> bool:
    """Whether this instance is to speak the protocol; without a choice it speaks all that the kind does."""
    return settings.protocols is None or protocol in settings.protocols


def endpoint(scheme: str, settings: SystemSettings, port: int) -> str:
    """The URL of a listener, with the credentials that open it."""
    who = ""
    if settings.user:
        who = f"{quote(settings.user, safe='')}:{quote(settings.password or '', safe='')}@"
    return f"{scheme}://{who}{HOST}:{port}"


def public(settings: SystemSettings) -> dict[str, Any]:
    """The settings as a manifest may hold them: without the password."""
    document: dict[str, Any] = msgspec.to_builtins(settings, enc_hook=format_unit)
    return {key: value for key, value in document.items() if key != "password"}


def _check_protocols(kind: SystemKind, settings: SystemSettings) -> None:
    if settings.protocols is None:
        return
    can = protocols_of(kind)
    if not settings.protocols:
        raise ConfigError(f"system.settings.protocols: name at least one of {', '.join(can)}")
    for protocol in settings.protocols:
        if protocol not in can:
            raise ConfigError(
                f"system.settings.protocols: {kind.name} does not speak {protocol!r}; it speaks {', '.join(can)}"
            )


def _sentence(complaint: str) -> str:
    """msgspec names the place at the end, `refuse` at the beginning; a person wants it at the beginning."""
    match = _PATH.match(complaint)
    what, path = (match["what"], match["path"]) if match else (complaint, None)
    if path:
        return f"system.settings.{path}: {what}"
    key, colon, why = what.partition(": ")
    return f"system.settings.{key}: {why}" if colon and key.isidentifier() else f"system.settings: {what}"
