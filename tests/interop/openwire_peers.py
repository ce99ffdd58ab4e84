"""An OpenWire connection on a blocking socket, and the client of ActiveMQ itself, for tests against real brokers."""

import subprocess
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from blocking_session import CONSUMER, PRODUCER, BlockingSession, connected
from crescendo.systems.instance import RunningInstance
from crescendo.systems.registry import system_of
from crescendo.wire.openwire.connection import Connection
from crescendo.wire.openwire.events import Closed, Completed, Connected, Deliveries, Event, Refused
from crescendo.wire.openwire.identifiers import Destination
from crescendo.wire.responses import Rejected, Responses
from pumping import TIMEOUT_S


class OpenWireSession(BlockingSession):
    """Send a command, wait for its effect."""

    def __init__(self, url: str, name: str, **options: Any) -> None:
        super().__init__(Connection, url, name, **options)
        self.destination = b""
        self._answered: set[int] = set()

    def _handle(self, event: Event) -> None:
        match event:
            case Connected():
                self._connected = True
            case Deliveries():
                self._keep(event)
                self.destination = event.destination
            case Completed(command_id=number):
                self._answered.add(number)
            case Responses(numbers=numbers):
                self._answered.update(numbers.tolist())
            case Refused(reason=reason) | Rejected(reason=reason):
                raise ConnectionRefusedError(reason)
            case Closed(reason=reason):
                raise ConnectionAbortedError(reason)

    def done(self, request: int) -> None:
        """Wait for the answer to a command or a message."""
        while request not in self._answered:
            self.step()

    def send(self, destination: Destination, body: bytes, **options: Any) -> None:
        if not self._sent:
            self.done(self.connection.add_producer(PRODUCER, destination))
        self.connection.send(self._sent, body, producer=PRODUCER, destination=destination, **options)
        self._sent += 1
        self.done(self._sent - 1)

    def consume(self, destination: Destination, **options: Any) -> None:
        self.done(self.connection.add_consumer(CONSUMER, destination, prefetch=100, **options))

    def acknowledge(self, first: int, last: int, **options: Any) -> None:
        """Acknowledge the messages from the first to the last received."""
        ids, count = self.ids, last - first + 1
        self.done(
            self.connection.acknowledge_span(
                CONSUMER, self.destination, ids[first], ids[last], count, answered=True, **options
            )
        )


def openwire_session(url: str, name: str, **options: Any) -> AbstractContextManager[OpenWireSession]:
    return connected(OpenWireSession(url, name, **options))


def run_activemq_client(verb: str, broker: RunningInstance, queue: str, *options: str, directory: Path) -> str:
    """Run the JMS client that comes with ActiveMQ, against any OpenWire broker; returns what it logged."""
    installation = system_of("activemq").find(None, None)
    parts = urlsplit(broker.endpoints["openwire"])
    arguments = [
        "-XX:TieredStopAtLevel=1", "-Dlog4j2.level=INFO", f"-Dactivemq.home={installation.home}",
        f"-Dactivemq.conf={directory}", f"-Dactivemq.data={directory}", "-jar", f"{installation.home}/bin/activemq.jar",
        verb, "--brokerUrl", f"tcp://{parts.hostname}:{parts.port}", "--destination", f"queue://{queue}",
        "--user", unquote(parts.username or ""), "--password", unquote(parts.password or ""), *options,
    ]  # fmt: skip
    file = directory / "arguments"  # keeps the password out of the list of processes
    file.touch(mode=0o600)
    file.write_text("\n".join(arguments))
    command = [str(installation.java), f"@{file}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False, cwd=directory)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
