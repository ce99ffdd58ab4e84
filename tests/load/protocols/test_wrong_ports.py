"""Somebody gave the port of another protocol: is that what the sentence asks?"""

import contextlib
import re
import socket
import threading
import time
from contextlib import closing

import pytest

from crescendo.load.protocols.registry import driver_of
from crescendo.model.protocols import OWN
from crescendo.model.workload import Group
from crescendo.net.sockets import listen

AMQP = b"AMQP\x03\x01\x00\x00\x00\x00\x00\x28\x02\x01"
HTTP = b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n"

ASKED = r"is this an? \w+ port|does it speak|does not speak|are user and password right\?|speaks AMQP 1\.0"


@pytest.mark.parametrize(
    ("protocol", "answer"),
    [(name, answer) for name in OWN for answer in (HTTP, AMQP, b"") if (name, answer) != ("amqp10", AMQP)],
)
def test_a_port_of_another_protocol_is_asked_about(protocol: str, answer: bytes) -> None:
    with listen() as server:

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:  # MQTT tries its older version, too
                    client, _ = server.accept()
                    with client:
                        client.recv(1 << 16)
                        client.sendall(answer)

        serving = threading.Thread(target=serve, daemon=True)
        serving.start()
        url = f"{OWN[protocol].scheme}://127.0.0.1:{server.getsockname()[1]}"
        group = Group(address="topic://x" if protocol == "mqtt" else "queue://x", protocol=protocol)
        with closing(driver_of(protocol, "receiver")(url, group)) as channel:
            deadline_s = time.monotonic() + 10
            while channel.closed is None and time.monotonic() < deadline_s:
                channel.flush()
                list(channel.pump())
                time.sleep(0.001)
            server.shutdown(socket.SHUT_RDWR)
            serving.join()
            assert re.search(ASKED, str(channel.closed)), channel.closed
