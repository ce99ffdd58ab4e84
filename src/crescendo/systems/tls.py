"""What does an instance with TLS need besides its other files, ports and endpoints?

The same for all kinds: a separate port for each protocol over TLS, certificates in the instance's directory (generated,
or copied from the user's files), and endpoints whose URLs name the CA to trust and the certificate to present. Each
kind configures its own listeners. The plain listeners stay.
"""

from collections.abc import Mapping
from pathlib import Path
from urllib.parse import quote, urlencode

from crescendo.model.errors import ConfigError, PeerError
from crescendo.model.protocols import secure_schemes
from crescendo.model.urls import parse_url
from crescendo.net.tls import Tls, check_handshake, client_context, server_context, tls_of_url
from crescendo.net.transport import connect
from crescendo.systems.base import SystemKind, SystemSettings, TlsSettings
from crescendo.systems.ports import HOST
from crescendo.systems.settings import endpoint, protocols_of, speaks

CA, CERTIFICATE, KEY = "tls/ca.pem", "tls/server.pem", "tls/server.key"
CLIENT_CERTIFICATE, CLIENT_KEY = "tls/client.pem", "tls/client.key"
KEY_STORE, TRUST_STORE = "tls/server.p12", "tls/ca.p12"
STORE_PASSWORD = "crescendo"  # noqa: S105 - Java requires one; the file mode protects the key
VERSIONS = ("TLSv1.3", "TLSv1.2")
_PROBE_TIMEOUT_S = 5.0


def secure_ports(kind: SystemKind, settings: SystemSettings) -> tuple[str, ...]:
    """The port names of the listeners that TLS adds."""
    if settings.secure is None:
        return ()
    secure = secure_schemes()
    return tuple(secure[name] for name in protocols_of(kind) if speaks(settings, name))


def secure_endpoints(settings: SystemSettings, directory: Path, ports: Mapping[str, int]) -> dict[str, str]:
    """The URLs of the TLS listeners. A client needs nothing else: the options name the files to read."""
    if settings.secure is None:
        return {}
    files = {"ca": CA}
    if settings.secure.client_certificates is not None:
        files |= {"cert": CLIENT_CERTIFICATE, "key": CLIENT_KEY}
    options = urlencode({option: directory / file for option, file in files.items()}, quote_via=quote)
    schemes = [scheme for scheme in secure_schemes().values() if scheme in ports]
    return {scheme: f"{endpoint(scheme, settings, ports[scheme])}?{options}" for scheme in schemes}


def secure_files(settings: SystemSettings, *, needs_keystore: bool) -> dict[str, bytes]:
    """The files of the tls directory: path -> content. ConfigError when the user's files cannot be used."""
    tls = settings.secure
    if tls is None:
        return {}
    if tls.certificate is not None and not needs_keystore:
        return _given_files(tls, settings.listen)  # needs no library
    try:
        from crescendo.systems import certificates
    except ImportError as err:
        raise ConfigError(
            "system.settings.tls: the library cryptography, which makes the certificates, is not installed; "
            "pip install cryptography"
        ) from err
    if tls.certificate is not None:
        files = _given_files(tls, settings.listen)
    else:
        authority = certificates.Authority()
        server, client = authority.server(settings.listen, "localhost"), authority.client()
        files = {CA: authority.certificate, CERTIFICATE: server.certificate, KEY: server.key}
        if tls.client_certificates is not None:
            files |= {CLIENT_CERTIFICATE: client.certificate, CLIENT_KEY: client.key}
    if needs_keystore:
        password = STORE_PASSWORD.encode()
        pair = certificates.CertificatePair(files[CERTIFICATE], files[KEY])
        files[KEY_STORE] = certificates.key_store(pair, password)
        files[TRUST_STORE] = certificates.trust_store(files[CA], password)
    return files


def probe_tls(endpoints: Mapping[str, str]) -> None:
    """Complete a TLS handshake with the right certificates on every listener, or raise PeerError."""
    for scheme in secure_schemes().values():
        if scheme in endpoints:
            url = endpoints[scheme]
            parts = parse_url(url)
            connect(parts.host or HOST, parts.port or 0, tls=tls_of_url(url), timeout_s=_PROBE_TIMEOUT_S).close()


def _given_files(tls: TlsSettings, host: str) -> dict[str, bytes]:
    certificate, key, ca = (Path(name or "") for name in (tls.certificate, tls.key, tls.ca))
    try:
        check_handshake(server_context(certificate, key, ca, None), client_context(Tls(ca=ca)), host)
    except (ConfigError, PeerError) as err:  # otherwise the system would start, and no client could connect
        raise ConfigError(f"system.settings.tls: {err}") from err
    return {CA: ca.read_bytes(), CERTIFICATE: certificate.read_bytes(), KEY: key.read_bytes()}
