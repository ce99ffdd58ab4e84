"""How soon a connection notices that the broker is silent is what its group asked for."""

import os
import secrets
import signal
import socket
import time
from contextlib import ExitStack, closing
from typing import Any

import pytest

from crescendo.load.protocols.registry import driver_of
from crescendo.model.connection_timeouts import ConnectionTimeouts
from crescendo.model.protocols import protocol_of
from crescendo.model.units import Duration
from crescendo.model.workload import Group
from crescendo.systems.instance import RunningInstance
from pumping import ready

SECOND = 10**9
NOTICED_S = {"mqtt": 1.0, "amqp091": 2.0, "amqp10": 2.0, "stomp": 3.0}
"""At the earliest, with heartbeats every second."""


def test_a_silent_broker_is_noticed_by_the_heartbeats_that_the_group_wants(rabbitmq: RunningInstance) -> None:
    with ExitStack() as stack:

        def receiver(protocol: str, **settings: Duration) -> Any:
            address = f"topic://silent-{secrets.token_hex(4)}"
            group = Group(address=address, protocol=protocol, connection=ConnectionTimeouts(**settings))
            url = rabbitmq.endpoints[protocol_of(protocol).endpoint]
            channel = stack.enter_context(closing(driver_of(protocol, "receiver")(url, group)))
            ready(channel).begin()
            return channel

        patient = receiver("amqp091")
        impatient = {name: receiver(name, heartbeat=Duration(SECOND)) for name in NOTICED_S}
        os.kill(rabbitmq.pid, signal.SIGSTOP)
        try:
            paused_s, noticed_s = time.monotonic(), {}
            while len(noticed_s) < len(impatient) and time.monotonic() < paused_s + 15:
                for name, channel in impatient.items():
                    list(channel.pump())
                    channel.keep_alive(time.monotonic_ns())
                    if channel.closed is not None and name not in noticed_s:
                        noticed_s[name] = time.monotonic() - paused_s
                patient.keep_alive(time.monotonic_ns())
                time.sleep(0.01)
        finally:
            os.kill(rabbitmq.pid, signal.SIGCONT)
        assert all("silent for" in channel.closed for channel in impatient.values())
        for name, earliest_s in NOTICED_S.items():
            # The last heartbeat may have come a second before the pause, and a busy machine is late.
            assert earliest_s - 1.2 < noticed_s[name] < earliest_s + 6, noticed_s
        assert patient.closed is None


@pytest.mark.parametrize("protocol", list(NOTICED_S))
def test_the_kernel_has_the_timeouts_of_the_group(rabbitmq: RunningInstance, protocol: str) -> None:
    settings = ConnectionTimeouts(keepalive=Duration(7 * SECOND), user_timeout=Duration(2500 * 10**6))
    group = Group(address="topic://timeouts", protocol=protocol, connection=settings)
    channel = driver_of(protocol, "sender")(rabbitmq.endpoints[protocol_of(protocol).endpoint], group)
    with closing(channel), socket.socket(fileno=os.dup(channel.fileno())) as same:
        asked = [
            (socket.SOL_SOCKET, socket.SO_KEEPALIVE), (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE),
            (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL), (socket.IPPROTO_TCP, socket.TCP_KEEPCNT),
            (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT),
        ]  # fmt: skip
        assert [same.getsockopt(*one) for one in asked] == [1, 7, 7, 3, 2500]
