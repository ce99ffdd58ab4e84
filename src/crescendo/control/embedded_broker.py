"""Where does the control broker come from when the user names none?

From a child process: amqtt on a free port, ready when the constructor returns. It admits one account, which is made for
the run and reaches the child over its pipe. It serves this host, or over TLS any other; without TLS it refuses to
listen beyond the loopback interface. It does not run inside the conductor's process, because it costs 0.65 ms per note
and would delay lease renewals. The child holds no state worth saving, so it is simply terminated, and it exits by
itself when its parent dies. On a host of a cluster it is started with a private file of settings instead, and stays.
Knows no notes.
"""

import contextlib
import ipaddress
import os
import secrets
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self
from urllib.parse import quote

import msgspec

from crescendo.model.errors import ConfigError, LostError
from crescendo.processes.child import OnFork, end_child, first_line, launch_child

HOST = "127.0.0.1"
START_TIMEOUT_S = 20.0
_TERMINATE_TIMEOUT_S = 2.0
USER = "crescendo"


class BrokerCertificate(NamedTuple):
    """What the broker presents, in PEM, and the file with the authority that its clients trust."""

    certificate: bytes
    key: bytes
    ca: Path


class ControlBrokerSettings(msgspec.Struct):
    """What the process of a broker must know."""

    host: str
    port: int
    user: str
    password: str
    certificate: str = ""
    key: str = ""


class EmbeddedBroker:
    """An MQTT broker for one run. Use as a context manager, or call close()."""

    def __init__(
        self,
        on_fork: OnFork | None = None,
        *,
        host: str = HOST,
        port: int = 0,
        certificate: BrokerCertificate | None = None,
    ) -> None:
        """`host` is the address to listen at; beyond the loopback interface it needs a certificate."""
        if certificate is None and not _is_loopback(host):
            raise ConfigError(
                f"the control broker would listen at {host} without TLS, where others can read and change every note; "
                "give it a certificate, or use a loopback address"
            )
        self._host, self._certificate = host, certificate
        self._password = secrets.token_urlsafe(24)
        self._process = launch_child(
            [sys.executable, "-W", "ignore", "-m", "crescendo.control.embedded_broker"],
            on_fork=on_fork,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        settings = ControlBrokerSettings(host, port, USER, self._password)
        if certificate is not None:
            settings.certificate, settings.key = certificate.certificate.decode(), certificate.key.decode()
        try:
            self._configure(settings)
            self._port = self._reported_port()
        except BaseException:
            self.close()
            raise

    @property
    def url(self) -> str:
        """With the account, so not for argument lists and logs."""
        account = f"{USER}:{self._password}@{_in_url(self._host)}:{self._port}"
        return (
            f"mqtt://{account}"
            if self._certificate is None
            else f"mqtts://{account}?ca={quote(str(self._certificate.ca))}"
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def close(self) -> None:
        """Terminate the child; kill it if it does not exit in time."""
        end_child(self._process, _TERMINATE_TIMEOUT_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, err: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def _configure(self, settings: ControlBrokerSettings) -> None:
        """Over the pipe, which stays open: the child ends when it closes."""
        with contextlib.suppress(OSError):  # a child that has ended reports no port
            if self._process.stdin is not None:
                self._process.stdin.write(msgspec.json.encode(settings) + b"\n")
                self._process.stdin.flush()

    def _reported_port(self) -> int:
        line = first_line(self._process, START_TIMEOUT_S)
        if not line.isdigit():
            raise LostError(f"the control broker did not start: {line or 'no answer'}")
        return int(line)


def main() -> None:
    """The child: serve until the parent closes our standard input. With a file of settings: until a signal."""
    import asyncio
    import logging

    logging.disable()  # amqtt logs every lost client as a warning; the conductor learns of it by the last will
    stands_alone = len(sys.argv) > 1
    given = Path(sys.argv[1]).read_bytes() if stands_alone else sys.stdin.buffer.readline()
    settings = msgspec.json.decode(given, type=ControlBrokerSettings)
    if not stands_alone:
        threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        asyncio.run(_serve(settings, "the control broker waits for runs on port " if stands_alone else ""))
    except Exception as err:
        _report(f"{type(err).__name__}: {err}")
        sys.exit(1)


async def _serve(settings: ControlBrokerSettings, announcement: str) -> None:
    import asyncio

    from amqtt.adapters import StreamReaderAdapter, StreamWriterAdapter
    from amqtt.broker import Broker

    # Listen here and pass the connections on: amqtt does not report which port the kernel chose.
    broker = Broker(
        {
            "listeners": {"default": {"type": "external"}},
            "plugins": {
                "crescendo.control.broker_account.BrokerAccount": {
                    "user": settings.user,
                    "password": settings.password,
                }
            },
        }
    )
    await broker.start()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await broker.external_connected(StreamReaderAdapter(reader), StreamWriterAdapter(writer), "default")

    tls = _tls_context(settings) if settings.certificate else None
    server = await asyncio.start_server(connected, settings.host, settings.port, ssl=tls)
    _report(f"{announcement}{server.sockets[0].getsockname()[1]}")
    await server.serve_forever()


def _tls_context(settings: ControlBrokerSettings) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    with tempfile.TemporaryDirectory() as directory:  # of mode 0700; Python's ssl reads certificates from files only
        pair = Path(directory) / "pair.pem"
        pair.write_text(settings.key + settings.certificate)
        context.load_cert_chain(pair)
    return context


def _is_loopback(host: str) -> bool:
    try:
        return all(
            ipaddress.ip_address(str(found[4][0]).partition("%")[0]).is_loopback
            for found in socket.getaddrinfo(host, 0)
        )
    except OSError as err:
        raise ConfigError(f"the control broker cannot listen at {host!r}: {err.strerror}") from err


def _in_url(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _report(line: str) -> None:
    os.write(1, f"{' '.join(line.split())}\n".encode())


def _end_with_parent() -> None:
    while sys.stdin.buffer.read(4096):
        pass
    os._exit(0)  # at once: a graceful exit would wait for clients that may be dead as well


if __name__ == "__main__":
    main()
