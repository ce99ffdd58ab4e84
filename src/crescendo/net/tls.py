"""Which certificates does a TLS connection trust, and which does it present?

A frozen value from the scheme and the options of a URL, and the context that Python's ssl makes of it. Verification is
on unless the user turns it off explicitly; nothing older than TLS 1.2 is accepted. Opens no connection.
"""

import re
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import NoReturn

from crescendo.model.errors import ConfigError, PeerError
from crescendo.model.protocols import TLS_OPTIONS, protocol_of_scheme
from crescendo.model.urls import parse_url

_YES_NO = {"yes": True, "true": True, "1": True, "no": False, "false": False, "0": False}
_ALERT = re.compile(r"(?:SSLV3|TLSV1|TLSV13)_ALERT_(\w+)")


@dataclass(frozen=True)
class Tls:
    """How to verify the peer, and which certificate to present."""

    ca: Path | None = None  # PEM; None: the authorities that this host trusts
    certificate: Path | None = None  # ours, PEM, with its chain
    key: Path | None = None  # None: it is in the certificate file
    verify: bool = True
    server_name: str | None = None  # None: the host we connect to

    def __post_init__(self) -> None:
        if self.key is not None and self.certificate is None:
            raise ConfigError("key: a key without a certificate has no effect; give cert too")
        if not self.verify and self.ca is not None:
            raise ConfigError("ca: has no effect with verify=no; leave one of the two out")


def tls_from(scheme: str, options: Mapping[str, str]) -> Tls | None:
    """The TLS settings of a URL's scheme and options; None without TLS. Ignores all other options."""
    given = {name: options[name] for name in TLS_OPTIONS if name in options}
    protocol = protocol_of_scheme(scheme)
    secure = None if protocol is None else protocol.secure_scheme
    if secure is None or scheme != secure:
        if given:
            cure = f"write {secure}://" if secure else "leave it out"
            raise ConfigError(f"{next(iter(given))}: {scheme}:// is not encrypted, so it would have no effect; {cure}")
        return None
    for name, value in given.items():
        if not value:
            raise ConfigError(f"{name}: is empty; give it a value, or leave it out")
    verify = given.get("verify", "yes").lower()
    if verify not in _YES_NO:
        raise ConfigError(f"verify: {verify!r} is neither yes nor no")
    return Tls(
        ca=Path(given["ca"]) if "ca" in given else None,
        certificate=Path(given["cert"]) if "cert" in given else None,
        key=Path(given["key"]) if "key" in given else None,
        verify=_YES_NO[verify],
        server_name=given.get("server_name"),
    )


def tls_of_url(url: str) -> Tls | None:
    """The TLS settings of a whole URL: `amqps://host:5671?ca=ca.pem&cert=client.pem&key=client.key`."""
    parts = parse_url(url)
    return tls_from(parts.scheme, parts.options)


@lru_cache(maxsize=64)  # thousands of connections share one; loading the host's authorities is slow
def client_context(tls: Tls) -> ssl.SSLContext:
    """The context for outgoing connections. ConfigError names the option whose file is not valid."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # verifies certificate and host name by default
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if not tls.verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    elif tls.ca is None:
        context.load_default_certs()
    else:
        _load_ca(context, tls.ca)
    if tls.certificate is not None:
        _load_certificate(context, tls.certificate, tls.key)
    return context


def server_context(certificate: Path, key: Path, ca: Path | None, client_certificates: str | None) -> ssl.SSLContext:
    """The context for accepting: client certificates, signed by `ca`, are `required`, `optional` or not requested."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    _load_certificate(context, certificate, key)
    if client_certificates is not None:
        context.verify_mode = ssl.CERT_REQUIRED if client_certificates == "required" else ssl.CERT_OPTIONAL
        if ca is not None:
            _load_ca(context, ca)
    return context


def check_handshake(server: ssl.SSLContext, client: ssl.SSLContext, server_name: str) -> None:
    """Perform a handshake in memory; PeerError says why it fails."""
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    busy = [client.wrap_bio(down, up, server_hostname=server_name), server.wrap_bio(up, down, server_side=True)]
    while busy:
        for side in list(busy):
            try:
                side.do_handshake()
                busy.remove(side)
            except ssl.SSLWantReadError:
                continue
            except ssl.SSLError as err:
                raise PeerError(tls_error_text(err)) from err


def tls_error_text(err: ssl.SSLError) -> str:
    """Why TLS failed: the peer's alert, or the fault that we found."""
    if isinstance(err, ssl.SSLCertVerificationError):
        return f"certificate verify failed: {err.verify_message.rstrip('.')}"
    reason = err.reason or ""
    if alert := _ALERT.fullmatch(reason):
        return f"the system ended TLS with the alert: {alert[1].replace('_', ' ').lower()}"
    if reason in {"WRONG_VERSION_NUMBER", "HTTP_REQUEST"}:
        return "the system does not speak TLS on this port"
    return f"TLS failed: {reason.replace('_', ' ').lower() or err.strerror or err}"


def _load_ca(context: ssl.SSLContext, ca: Path) -> None:
    _check_readable("ca", ca)
    try:
        context.load_verify_locations(cafile=ca)
    except ssl.SSLError as err:
        raise ConfigError(f"ca: {ca} contains no PEM certificate") from err


def _load_certificate(context: ssl.SSLContext, certificate: Path, key: Path | None) -> None:
    _check_readable("cert", certificate)
    if key is not None:
        _check_readable("key", key)
    holder = key or certificate

    def refuse() -> NoReturn:  # otherwise OpenSSL would prompt on the terminal
        raise ConfigError(f"key: {holder} is protected by a passphrase; give a key without one")

    try:
        context.load_cert_chain(certificate, key, password=refuse)
    except ssl.SSLError as err:
        if err.reason == "KEY_VALUES_MISMATCH":
            raise ConfigError(f"key: {holder} does not belong to the certificate in {certificate}") from err
        raise ConfigError(f"cert: {certificate} and {holder} contain no PEM certificate with its key") from err


def _check_readable(option: str, path: Path) -> None:
    try:
        with path.open("rb"):
            pass
    except OSError as err:
        raise ConfigError(f"{option}: {path} cannot be read: {err.strerror}") from err
