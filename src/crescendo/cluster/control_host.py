"""How do the hosts of a cluster get a control broker of their own, and learn to reach it?

The host of the group control runs our embedded broker, over TLS and with an account made for it. Certificate and
password are made here; key and password reach the host through standard input, the URL and the authority stay in two
private files here, from which every verb reads them, and go to the hosts with their peers. A broker that runs as those
files say is left alone. Starts nothing itself.
"""

import contextlib
import os
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import msgspec

from crescendo import __version__
from crescendo.cluster.cluster_file import ClusterHost, ControlPlace, digest_of
from crescendo.control.embedded_broker import USER, ControlBrokerSettings
from crescendo.model.errors import ConfigError, PeerError
from crescendo.model.url_files import files_of_url, with_files_at
from crescendo.net.sockets import connect
from crescendo.systems.certificates import Authority


@dataclass(frozen=True)
class ControlUrl:
    """What a client of the control broker needs: the URL, and the contents of the files that it names."""

    url: str
    files: Mapping[str, str]

    @property
    def digest(self) -> str:
        return digest_of(self.url, *self.files.items())

    def on_host(self, directory: str) -> dict[str, str]:
        """Name -> contents of the files that a host needs in its directory; the URL names those, not ours."""
        names = {file: f"control-{number}.pem" for number, file in enumerate(self.files)}
        url = with_files_at(self.url, {file: f"{directory}/{name}" for file, name in names.items()})
        return {"control.url": url, **{name: self.files[file] for file, name in names.items()}}


def access_of(url: str) -> ControlUrl:
    """With the certificates that the URL names, which are files of this machine."""
    try:
        return ControlUrl(url, {file: Path(file).read_text(encoding="utf-8") for file in files_of_url(url)})
    except (OSError, UnicodeDecodeError) as err:
        raise ConfigError(f"the control URL names a file that cannot be read: {err}") from None


def kept_access(url_file: Path, place: ControlPlace) -> ControlUrl | None:
    """What an earlier `up` wrote, if it is about this place."""
    try:
        url = url_file.read_text(encoding="utf-8").strip()
        if not url.startswith(f"mqtts://{USER}:") or f"@{_server(place)}?" not in url:
            return None
        return access_of(url)
    except (OSError, ConfigError):
        return None


def new_broker(host: ClusterHost, place: ControlPlace, url_file: Path) -> tuple[ControlUrl, ControlBrokerSettings]:
    """An account and a certificate; both files are written when the broker runs."""
    if url_file.exists() and not _is_ours(url_file):
        raise ConfigError(f"{url_file}: names another control broker; remove it, or the group control of the inventory")
    authority, password = Authority(), secrets.token_urlsafe(24)
    listen = host.listen or place.address
    pair = authority.server(*dict.fromkeys((place.address, listen)))
    ca = _ca_file(url_file)
    url = f"mqtts://{USER}:{password}@{_server(place)}?ca={quote(str(ca))}"
    settings = ControlBrokerSettings(listen, place.port, USER, password, pair.certificate.decode(), pair.key.decode())
    return ControlUrl(url, {str(ca): authority.certificate.decode()}), settings


def keep_access(access: ControlUrl, url_file: Path) -> None:
    """Write the URL and the authority, for this account only."""
    for path, text in ((url_file, access.url + "\n"), *((Path(file), text) for file, text in access.files.items())):
        try:
            path.unlink(missing_ok=True)
            with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
                file.write(text)
        except OSError as err:
            raise ConfigError(f"{path}: cannot be written: {err.strerror}") from err


def forget_access(url_file: Path, place: ControlPlace) -> None:
    """Delete what `up` wrote here, and nothing that somebody else wrote."""
    if kept_access(url_file, place) is not None:
        for path in (url_file, _ca_file(url_file)):
            with contextlib.suppress(OSError):
                path.unlink()


def process_of(access: ControlUrl, place: ControlPlace, settings: ControlBrokerSettings | None) -> dict[str, object]:
    """The broker as its host starts it, and the digest by which a later `up` knows it."""
    return {
        "id": place.id, "role": "control", "labels": [], "listen": "", "version": __version__,
        "settings": "" if settings is None else msgspec.json.encode(settings).decode(),
        "digest": digest_of(access.digest, __version__),
    }  # fmt: skip


def check_reachable(host: ClusterHost, place: ControlPlace) -> None:
    try:
        connect(place.address, place.port).close()
    except PeerError:
        raise ConfigError(
            f"{host.name}: its control broker runs, but TCP port {place.port} of {place.address} cannot be reached "
            "from here; open it, or set crescendo_listen or crescendo_control_port"
        ) from None


def _is_ours(url_file: Path) -> bool:
    with url_file.open(encoding="utf-8", errors="replace") as file:
        return file.readline().startswith(f"mqtts://{USER}:")


def _ca_file(url_file: Path) -> Path:
    return url_file.absolute().with_name(f"{url_file.name}.ca.pem")


def _server(place: ControlPlace) -> str:
    return f"[{place.address}]:{place.port}" if ":" in place.address else f"{place.address}:{place.port}"
