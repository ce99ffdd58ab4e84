"""How does a standing peer hand over what a run left?

Over HTTPS on its own address, or HTTP if that is a loopback address: a list of files with sizes and hashes, and each
file from any byte on. Every request carries a token that follows from the key of the run, so only the lab that started
a run gets its files. The hash of a sealed part is the one that was journalled when it was closed, so a file that
changed since then is found. Writes and deletes nothing.
"""

import contextlib
import hmac
import ipaddress
import re
import ssl
import tempfile
import threading
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from socket import socket
from typing import Any, ClassVar

import msgspec
from msgspec import Struct

from crescendo.control.trust import Lab, NoteScope
from crescendo.record.manifest import sha256_of
from crescendo.record.reader import journalled_parts
from crescendo.systems.certificates import Authority

FILE_NAME = re.compile(r"(?!inputs/)[A-Za-z0-9_][A-Za-z0-9_-]*/[A-Za-z0-9_][A-Za-z0-9_.-]*")
"""A table, journal or log of a recording; what the run was given is not handed back."""

_RUN = re.compile(r"[0-9a-f]{16}")
_RANGE = re.compile(r"bytes=(\d{1,18})-")
_PIECE_BYTES = 1024 * 1024
_MAX_CONNECTIONS = 16
_TIMEOUT_S = 30.0


class ListedFile(Struct, frozen=True):
    """One file of a recording: relative name, size, and the hash of what it should contain."""

    name: str
    octets: int
    sha256: str
    sealed: bool = False  # it will not change any more


def file_token(run: NoteScope) -> str:
    """What a request for the files of a run must show."""
    return hmac.digest(run.key, b"crescendo files", "sha256").hex()


def listed_files(directory: Path) -> list[ListedFile]:
    """What there is to fetch. Empty files are not: the empty log of a process is deleted when it ends."""
    sealed = {part.path: part.sha256 for part in journalled_parts(directory)}
    found = []
    for path in sorted(directory.rglob("*")):
        name = path.relative_to(directory).as_posix()
        if path.is_file() and not path.is_symlink() and FILE_NAME.fullmatch(name) and (octets := _size(path)):
            found.append(ListedFile(name, octets, sealed.get(name) or sha256_of(path), name in sealed))
    return found


def _size(path: Path) -> int:
    with contextlib.suppress(FileNotFoundError):  # deleted meanwhile
        return path.stat().st_size
    return 0


class RecordingServer:
    """Serves the recordings under one directory until it is closed."""

    def __init__(self, address: str, data: Path, lab: Lab) -> None:
        handler = type("RecordingHandler", (_Handler,), {"data": data, "lab": lab})
        self._server = _BoundedServer((address, 0), handler)
        self.port: int = self._server.server_address[1]
        self.authority = ""
        """The certificate that clients must trust; empty without TLS."""
        if not ipaddress.ip_address(address).is_loopback:
            self.authority = self._use_tls(address)
        self._thread = threading.Thread(target=self._server.serve_forever, name="files", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def _use_tls(self, address: str) -> str:
        authority = Authority()
        pair = authority.server(address, "localhost")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        with tempfile.NamedTemporaryFile() as file:  # mode 0600; the library reads files only
            file.write(pair.key + pair.certificate)
            file.flush()
            context.load_cert_chain(file.name)
        # The handshake happens in the thread of the connection, so that nobody can keep the others waiting.
        self._server.socket = context.wrap_socket(
            self._server.socket, server_side=True, do_handshake_on_connect=False
        )  # fmt: skip
        return authority.certificate.decode()


class _BoundedServer(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, address: tuple[str, int], handler: Callable[..., BaseHTTPRequestHandler]) -> None:
        self._free = threading.BoundedSemaphore(_MAX_CONNECTIONS)
        super().__init__(address, handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._free.acquire(blocking=False):
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request: socket | tuple[bytes, socket], client_address: Any) -> None:
        """A client that broke off is its own business."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = _TIMEOUT_S
    data: ClassVar[Path]
    lab: ClassVar[Lab]

    def do_GET(self) -> None:
        run, _, name = self.path.removeprefix("/").partition("/")
        shown = self.headers.get("Authorization", "")
        if not _RUN.fullmatch(run) or not hmac.compare_digest(
            f"Bearer {file_token(self.lab.scope_of(run))}".encode(), shown.encode()
        ):
            self._refuse(HTTPStatus.UNAUTHORIZED)
        elif not name:
            self._send(msgspec.json.encode(listed_files(self.data / run)))
        elif FILE_NAME.fullmatch(name) and (file := self.data / run / name).is_file() and not file.is_symlink():
            self._send_file(file)
        else:
            self._refuse(HTTPStatus.NOT_FOUND)

    def _send(self, content: bytes) -> None:
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def _send_file(self, path: Path) -> None:
        asked = _RANGE.fullmatch(self.headers.get("Range", ""))
        with path.open("rb") as file:
            octets = file.seek(0, 2)
            start = min(int(asked[1]), octets) if asked else 0
            self.send_response(HTTPStatus.PARTIAL_CONTENT if asked else HTTPStatus.OK)
            self.send_header("Content-Length", str(octets - start))
            self.end_headers()
            file.seek(start)
            left = octets - start
            while left and (piece := file.read(min(left, _PIECE_BYTES))):  # a log may grow meanwhile
                self.wfile.write(piece)
                left -= len(piece)

    def _refuse(self, status: HTTPStatus) -> None:
        self.close_connection = True
        self.send_response(status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *arguments: Any) -> None:
        """Requests are not worth a log."""
