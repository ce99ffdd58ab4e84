"""What can an HTTP client ask the broker?

Two pages: `/health` (200 while it serves, 503 with the reason otherwise) and `/metrics` (OpenMetrics). One request per
connection, only GET and HEAD, only small requests, only on the loopback interface. Changes nothing.
"""

import asyncio
import contextlib
import json
from collections.abc import Callable, Mapping
from typing import Any

from crescendo.model.errors import ConfigError

Page = Callable[[], tuple[int, str, str]]  # status, content type, body
_MAX_REQUEST_BYTES = 8192
_TIMEOUT_S = 5.0
_MAX_CONNECTIONS = 64
_REASONS = {200: "OK", 400: "Bad Request", 404: "Not Found", 405: "Method Not Allowed", 503: "Service Unavailable"}


class HttpEndpoints:
    """A server of a few pages. `start`, then `close`."""

    def __init__(self, pages: Mapping[str, Page]) -> None:
        self._pages = pages
        self._server: asyncio.Server | None = None
        self._requests: set[asyncio.Task[None]] = set()
        self.address = ""

    async def start(self, host: str, port: int) -> None:
        try:
            self._server = await asyncio.start_server(self._serve_request, host, port, limit=_MAX_REQUEST_BYTES)
        except OSError as err:
            raise ConfigError(
                f"http: cannot listen at {host}:{port}: {err.strerror or err}; choose another port"
            ) from err
        self.address = f"{host}:{self._server.sockets[0].getsockname()[1]}"

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
            for request in list(self._requests):
                request.cancel()
            await asyncio.gather(*self._requests, return_exceptions=True)
            await self._server.wait_closed()

    async def _serve_request(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is None or len(self._requests) >= _MAX_CONNECTIONS:
            writer.close()
            return
        self._requests.add(task)
        task.add_done_callback(self._requests.discard)
        try:
            async with asyncio.timeout(_TIMEOUT_S):
                head = await reader.readuntil(b"\r\n\r\n")
                writer.write(self._answer(head))
                await writer.drain()
        except (TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, OSError):
            pass  # no complete request, no answer
        finally:
            writer.close()
            with contextlib.suppress(OSError, asyncio.CancelledError):
                await writer.wait_closed()

    def _answer(self, head: bytes) -> bytes:
        fields = head.split(b"\r\n", 1)[0].split()
        if len(fields) != 3:
            return _response(400, "text/plain", "not an HTTP request\n")
        method, path = fields[0], fields[1].decode(errors="replace").partition("?")[0]
        if method not in {b"GET", b"HEAD"}:
            return _response(405, "text/plain", "only GET and HEAD\n")
        page = self._pages.get(path)
        if page is None:
            return _response(404, "text/plain", f"pages here: {' '.join(self._pages)}\n")
        return _response(*page(), with_body=method == b"GET")


def json_page(status: int, document: Any) -> tuple[int, str, str]:
    return status, "application/json", json.dumps(document) + "\n"


def _response(status: int, content_type: str, text: str, with_body: bool = True) -> bytes:
    body = text.encode()
    head = (
        f"HTTP/1.1 {status} {_REASONS[status]}\r\nContent-Type: {content_type}\r\nContent-Length: {len(body)}\r\n"
        "Connection: close\r\n\r\n"
    )
    return head.encode() + (body if with_body else b"")
