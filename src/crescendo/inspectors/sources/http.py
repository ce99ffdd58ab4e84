"""How does an inspector query a system over HTTP?

One request at a time, JSON or text in the answer, with a limit on the time an answer may take and on its size. Any
other behaviour of a server is a PeerError that names the server and never the credentials. Follows no redirects and
uses no proxy.
"""

import json
import re
import time
from collections.abc import Callable
from types import MappingProxyType
from typing import Any

import httpx

from crescendo.inspectors.base import MAX_ANSWER_BYTES, TIMEOUT_S
from crescendo.model.errors import PeerError
from crescendo.model.urls import parse_url

_NO_HEADERS: MappingProxyType[str, str] = MappingProxyType({})
_ERRNO = re.compile(r"^\[Errno -?\d+\] ")


class Http:
    """One server. Connects on demand, and reconnects after a failure."""

    def __init__(
        self, url: str, *, timeout_s: float = TIMEOUT_S, headers: MappingProxyType[str, str] = _NO_HEADERS
    ) -> None:
        parts = parse_url(url)
        host = f"[{parts.host}]" if ":" in (parts.host or "") else parts.host or "127.0.0.1"
        self.path = parts.path.rstrip("/")
        self._address = host if parts.port is None else f"{host}:{parts.port}"
        self._base = f"{parts.scheme}://{self._address}"
        self._auth = None
        if parts.user is not None:
            self._auth = httpx.BasicAuth(parts.user, parts.password or "")
        self._timeout_s = timeout_s
        self._headers = dict(headers)
        self._client: httpx.Client | None = None

    def get(self, path: str) -> Any:
        """The JSON at a path of this server."""
        return self._ask("GET", path, None, json.loads, "JSON")

    def text(self, path: str) -> str:
        """The text at a path of this server."""
        return str(self._ask("GET", path, None, bytes.decode, "text"))

    def post(self, path: str, body: Any) -> Any:
        """The JSON that answers a JSON body."""
        return self._ask("POST", path, body, json.loads, "JSON")

    def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            client.close()

    def _ask(self, method: str, path: str, body: Any, read: Callable[[bytes], Any], what: str) -> Any:
        if self._client is None:
            self._client = httpx.Client(
                base_url=self._base,
                auth=self._auth,
                headers=self._headers,
                timeout=self._timeout_s,
                trust_env=False,
                # Kept between inspections: by default it would reconnect for inspections 5 s apart.
                limits=httpx.Limits(max_connections=1, keepalive_expiry=None),
            )
        url = f"{self._address}{path}"
        try:
            return read(self._answer(self._client, method, path, body, url))
        except httpx.TimeoutException as err:
            self.close()
            raise PeerError(f"{url} did not answer within {self._timeout_s:g} s") from err
        except httpx.HTTPError as err:
            self.close()
            reason = _ERRNO.sub("", str(err)) or type(err).__name__
            cure = "; is it running, and is this its port?" if isinstance(err, httpx.ConnectError) else ""
            raise PeerError(f"{url} could not be queried: {reason}{cure}") from err
        except (ValueError, RecursionError) as err:
            self.close()
            raise PeerError(f"{url} answered with something that is not {what}") from err
        except PeerError:
            self.close()
            raise

    def _answer(self, client: httpx.Client, method: str, path: str, body: Any, url: str) -> bytes:
        deadline_s = time.monotonic() + self._timeout_s
        with client.stream(method, path, json=body) as response:
            if response.status_code in {401, 403}:
                raise PeerError(f"{url} denies access to this user (HTTP {response.status_code})")
            if response.status_code != 200:
                raise PeerError(f"{url} answered HTTP {response.status_code} {response.reason_phrase}".rstrip())
            answer = bytearray()
            for chunk in response.iter_bytes():
                answer += chunk
                if len(answer) > MAX_ANSWER_BYTES:
                    raise PeerError(f"{url} answered with more than {MAX_ANSWER_BYTES} bytes")
                if time.monotonic() > deadline_s:
                    raise PeerError(f"{url} did not finish its answer within {self._timeout_s:g} s")
        return bytes(answer)
