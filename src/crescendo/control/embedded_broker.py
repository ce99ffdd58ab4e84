"""Where does the control broker come from when the user names none?

From a child process: amqtt on a free loopback port, ready when the constructor returns. It does not run inside the
conductor's process, because it costs 0.65 ms per note and would delay lease renewals. The child holds no state worth
saving, so it is simply terminated, and it exits by itself when its parent dies. Knows no notes; serves this host only.
"""

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Self

from crescendo.model.errors import LostError
from crescendo.processes.child import end_child, first_line, launch_child

HOST = "127.0.0.1"
START_TIMEOUT_S = 20.0
_TERMINATE_TIMEOUT_S = 2.0


class EmbeddedBroker:
    """An MQTT broker for one run. Use as a context manager, or call close()."""

    def __init__(self, preexec_fn: Callable[[], None] | None = None) -> None:
        self._process = launch_child(
            [sys.executable, "-W", "ignore", "-m", "crescendo.control.embedded_broker"],
            on_fork=preexec_fn,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        try:
            self._port = self._reported_port()
        except BaseException:
            self.close()
            raise

    @property
    def url(self) -> str:
        return f"mqtt://{HOST}:{self._port}"

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

    def _reported_port(self) -> int:
        line = first_line(self._process, START_TIMEOUT_S)
        if not line.isdigit():
            raise LostError(f"the control broker did not start: {line or 'no answer'}")
        return int(line)


def main() -> None:
    """The child: serve until the parent closes our standard input."""
    import asyncio
    import logging

    logging.disable()  # amqtt logs every lost client as a warning; the conductor learns of it by the last will
    threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        asyncio.run(_serve())
    except Exception as err:
        _report(f"{type(err).__name__}: {err}")
        raise


async def _serve() -> None:
    import asyncio

    from amqtt.adapters import StreamReaderAdapter, StreamWriterAdapter
    from amqtt.broker import Broker

    # Listen here and pass the connections on: amqtt does not report which port the kernel chose.
    broker = Broker(
        {
            "listeners": {"default": {"type": "external"}},
            "plugins": {"amqtt.plugins.authentication.AnonymousAuthPlugin": {"allow_anonymous": True}},
        }
    )
    await broker.start()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await broker.external_connected(StreamReaderAdapter(reader), StreamWriterAdapter(writer), "default")

    server = await asyncio.start_server(connected, HOST, 0)
    _report(str(server.sockets[0].getsockname()[1]))
    await server.serve_forever()


def _report(line: str) -> None:
    os.write(1, f"{' '.join(line.split())}\n".encode())


def _end_with_parent() -> None:
    while os.read(0, 4096):
        pass
    os._exit(0)  # at once: a graceful exit would wait for clients that may be dead as well


if __name__ == "__main__":
    main()
