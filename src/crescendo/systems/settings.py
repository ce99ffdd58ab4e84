"""Can this kind of system honour every one of these settings?

The user's settings become the kind's own settings value, or an error that names the key and the cure. Nothing is
ignored: a kind refuses what it cannot do.
"""

import ipaddress
import secrets
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

import msgspec

from crescendo.model.document_errors import explain
from crescendo.model.errors import ConfigError
from crescendo.model.protocols import known_protocols
from crescendo.model.redaction import redact_value
from crescendo.model.suggestions import listing
from crescendo.model.units import format_unit, parse_unit
from crescendo.systems.base import SystemKind, SystemSettings


def endpoint_names() -> list[str]:
    """The endpoints that a system can have for load, one per protocol."""
    return [protocol.endpoint for protocol in known_protocols().values()]


def protocols_of(kind: SystemKind) -> tuple[str, ...]:
    """The protocols that the kind supports: each has a port of its own name."""
    return tuple(name for name in endpoint_names() if name in kind.ports)


def settings_of(kind: SystemKind, given: Mapping[str, Any]) -> SystemSettings:
    """The settings of one instance, checked, with a random password where none was given."""
    known = [field.name for field in msgspec.structs.fields(kind.settings)]
    for key in given:
        if key not in known:
            raise ConfigError(f"system.settings.{key}: {kind.name} has no such setting; {listing(key, known)}")
    try:
        settings = msgspec.convert(dict(given), kind.settings, dec_hook=parse_unit)
    except msgspec.ValidationError as err:
        raise ConfigError(_error_message(str(err), given, kind.settings)) from err
    _check_protocols(kind, settings)
    _check_listen(settings.listen)
    if settings.password is None and settings.user:
        # Letters and digits: the command-line tools of brokers take a leading hyphen for an option.
        settings = msgspec.structs.replace(settings, password=secrets.token_hex(12))
    return settings


def refuse(settings: SystemSettings, **reasons: str) -> None:
    """For a kind's `__post_init__`: refuse settings that differ from their default, with the reason."""
    defaults = {field.name: field.default for field in msgspec.structs.fields(type(settings))}
    for name, why in reasons.items():
        value = getattr(settings, name)
        unset = not value if isinstance(value, list) else value == defaults[name]
        if not unset:
            raise ValueError(f"{name}: {why}")


def speaks(settings: SystemSettings, protocol: str) -> bool:
    """Whether this instance serves the protocol; by default it serves all that the kind supports."""
    return settings.protocols is None or protocol in settings.protocols


def endpoint(scheme: str, settings: SystemSettings, port: int) -> str:
    """The URL of a listener, with credentials."""
    userinfo = ""
    if settings.user:
        userinfo = f"{quote(settings.user, safe='')}:{quote(settings.password or '', safe='')}@"
    return f"{scheme}://{userinfo}{settings.listen}:{port}"


def redacted_settings(settings: SystemSettings) -> dict[str, Any]:
    """The settings for the manifest: without the password, and with every other secret hidden."""
    document: dict[str, Any] = msgspec.to_builtins(settings, enc_hook=format_unit)
    shown: dict[str, Any] = redact_value({key: value for key, value in document.items() if key != "password"})
    return shown


def _check_protocols(kind: SystemKind, settings: SystemSettings) -> None:
    if settings.protocols is None:
        return
    supported = protocols_of(kind)
    if not settings.protocols:
        raise ConfigError(f"system.settings.protocols: name at least one of {', '.join(supported)}")
    for protocol in settings.protocols:
        if protocol not in supported:
            raise ConfigError(
                f"system.settings.protocols: {kind.name} does not speak {protocol!r}; it speaks {', '.join(supported)}"
            )


def _check_listen(address: str) -> None:
    try:
        usable = not ipaddress.IPv4Address(address).is_unspecified  # clients could not connect to all at once
    except ValueError:
        usable = False
    if not usable:
        raise ConfigError(
            f"system.settings.listen: {address!r} is not an IPv4 address of this machine; write one, such as 192.0.2.7"
        )


def _error_message(error: str, given: Mapping[str, Any], settings: type[SystemSettings]) -> str:
    """Put the key first, which `refuse` has done already."""
    if " - at `$" in error:
        return f"system.settings.{explain(error, given, settings)}"
    key, colon, why = error.partition(": ")
    return f"system.settings.{key}: {why}" if colon and key.isidentifier() else f"system.settings: {error}"
