"""Do we and an implementation that shares no code with us understand each other, both ways?"""

import os
import signal
import time
from collections.abc import Iterator
from contextlib import closing
from urllib.parse import urlsplit

import pytest

from crescendo.load.protocols import amqp10
from crescendo.load.protocols.amqp10 import Amqp10Receiver, Amqp10Sender
from crescendo.model.payload import PayloadSize
from crescendo.model.workload import Group, Settle
from crescendo.processes.die_with_parent import die_with_parent
from crescendo.record.schema import Settlement
from crescendo.systems.instance import RunningInstance, start
from crescendo.systems.kinds.loopback import LOOPBACK
from interop_peers import ProtonReceiver, ProtonSender, ProtonServer, bodies, free_port, running, wait
from pumping import TIMEOUT_S, pumped, ready, receive_all, send_all

SIZES = [(5000, 32), (500, 255), (500, 256), (500, 4096), (25, 200_000)]
BOTH = [False, True]
# The batch path with every size; the scalar path with the extremes, because codec tests hold both paths equal.
PATHS = [(*pair, True) for pair in SIZES] + [(500, 32, False), (25, 200_000, False)]
sizes = pytest.mark.parametrize(("count", "size"), SIZES, ids=[f"{size}B" for _, size in SIZES])
paths = pytest.mark.parametrize(
    ("count", "size", "batching"), PATHS, ids=[f"{size}B-{'batch' if batch else 'scalar'}" for _, size, batch in PATHS]
)
settling = pytest.mark.parametrize("presettled", BOTH, ids=["unsettled", "presettled"])


def group(size: int, *, presettled: bool, address: str = "perf") -> Group:
    settle = Settle.AT_MOST_ONCE if presettled else Settle.AT_LEAST_ONCE
    return Group(address=address, size=PayloadSize.fixed(size), settle=settle)


@pytest.fixture
def queue(request: pytest.FixtureRequest) -> str:
    """A queue of its own for each test on the shared relay."""
    return f"queue-{abs(hash(request.node.nodeid))}"


@pytest.fixture(scope="module")
def relay(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningInstance]:
    system = start(LOOPBACK, {}, directory=tmp_path_factory.mktemp("open") / "relay", on_fork=die_with_parent())
    yield system
    system.stop()


# -- through the relay -----------------------------------------------------------------------------------------------


@sizes
@settling
def test_proton_talks_to_proton_through_our_relay(
    relay: RunningInstance, queue: str, count: int, size: int, presettled: bool
) -> None:
    payloads = bodies(count, size)
    receiver = ProtonReceiver(relay.url, queue, count, presettled=presettled)
    with running(receiver), running(ProtonSender(relay.url, queue, payloads, presettled=presettled)) as sender:
        wait(receiver)
        wait(sender)
    assert sender.faults == receiver.faults == []
    assert receiver.received == payloads


@sizes
@settling
def test_our_sender_reaches_proton_through_our_relay(
    relay: RunningInstance, queue: str, count: int, size: int, presettled: bool
) -> None:
    payloads = bodies(count, size)
    receiver = ProtonReceiver(relay.url, queue, count)
    with (
        running(receiver),
        closing(Amqp10Sender(relay.url, group(size, presettled=presettled, address=queue))) as sender,
    ):
        send_all(sender, payloads, settled=presettled)
        wait(receiver)
    assert receiver.faults == []
    assert receiver.received == payloads


@sizes
@settling
def test_proton_reaches_our_receiver_through_our_relay(
    relay: RunningInstance, queue: str, count: int, size: int, presettled: bool
) -> None:
    payloads = bodies(count, size)
    with (
        running(ProtonSender(relay.url, queue, payloads, presettled=False)) as sender,
        closing(Amqp10Receiver(relay.url, group(size, presettled=presettled, address=queue))) as receiver,
    ):
        ready(receiver).begin()
        assert receive_all(receiver, count) == payloads
        wait(sender)
    assert sender.faults == []


# -- against a foreign server ----------------------------------------------------------------------------------------


@paths
@settling
def test_a_proton_server_takes_what_we_send(count: int, size: int, presettled: bool, batching: bool) -> None:
    payloads = bodies(count, size)
    server = ProtonServer(free_port())
    with running(server):
        assert server.listening.wait(TIMEOUT_S)
        url = f"amqp://127.0.0.1:{server.port}"
        with closing(Amqp10Sender(url, group(size, presettled=presettled), batching=batching)) as sender:
            outcomes = send_all(sender, payloads, settled=presettled)
            deadline_s = time.monotonic() + TIMEOUT_S
            while len(server.received) < count and time.monotonic() < deadline_s:
                pumped(sender)
    assert server.faults == []
    assert server.received == payloads
    if size <= 4096:  # larger ones take the batch path only if the server accepts such frames
        assert sender.batched == (count if batching else 0)
    if not presettled:
        settled = [int(seq) for seqs, _ in outcomes for seq in seqs]
        assert sorted(settled) == list(range(count))
        assert {settlement for _, settlement in outcomes} == {Settlement.ACCEPTED}


@paths
@settling
def test_a_proton_server_reaches_our_receiver(count: int, size: int, presettled: bool, batching: bool) -> None:
    payloads = bodies(count, size)
    server = ProtonServer(free_port(), payloads)
    with running(server):
        assert server.listening.wait(TIMEOUT_S)
        url = f"amqp://127.0.0.1:{server.port}"
        with closing(Amqp10Receiver(url, group(size, presettled=presettled), batching=batching)) as receiver:
            ready(receiver).begin()
            assert receive_all(receiver, count) == payloads
            deadline_s = time.monotonic() + TIMEOUT_S
            while not presettled and server.settled < count and time.monotonic() < deadline_s:
                pumped(receiver)
    assert server.faults == []
    assert presettled or server.settled == count


# -- heartbeats ------------------------------------------------------------------------------------------------------


def test_heartbeats_keep_idle_connections_alive_in_all_directions(
    relay: RunningInstance, queue: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every peer times out after a second of silence; after three idle seconds all still work."""
    monkeypatch.setattr(amqp10, "IDLE_TIME_OUT_MS", 500)  # announced; we time out after twice that
    server = ProtonServer(free_port(), idle_s=1.0)
    listener = ProtonReceiver(relay.url, queue, 1, heartbeat=1.0)
    with running(server), running(listener):
        assert server.listening.wait(TIMEOUT_S)
        url = f"amqp://127.0.0.1:{server.port}"
        with (
            closing(Amqp10Sender(url, group(32, presettled=False))) as to_server,
            closing(Amqp10Receiver(url, group(32, presettled=False))) as from_server,
            closing(Amqp10Sender(relay.url, group(32, presettled=False, address=queue))) as to_relay,
        ):
            ready(from_server).begin()
            ready(to_relay)
            ready(to_server)
            deadline_s = time.monotonic() + 3
            while time.monotonic() < deadline_s:
                for channel in (to_server, from_server, to_relay):
                    pumped(channel)
            assert server.faults == listener.faults == []
            send_all(to_server, bodies(10, 32), settled=False)
            send_all(to_relay, bodies(1, 32), settled=False)
            wait(listener)
    assert server.faults == listener.faults == []
    assert server.received == bodies(10, 32)
    assert listener.received == bodies(1, 32)


def test_a_silent_system_is_noticed(relay: RunningInstance, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(amqp10, "IDLE_TIME_OUT_MS", 200)
    pid = int(relay.facts["pid"])
    with closing(Amqp10Receiver(relay.url, group(32, presettled=False))) as receiver:
        ready(receiver).begin()
        pumped(receiver)
        os.kill(pid, signal.SIGSTOP)
        try:
            start_s = time.monotonic()
            while receiver.closed is None and time.monotonic() - start_s < TIMEOUT_S:
                list(receiver.pump())
                receiver.keep_alive(time.monotonic_ns())
                time.sleep(0.01)
        finally:
            os.kill(pid, signal.SIGCONT)
        assert 0.3 < time.monotonic() - start_s < 10  # 0.4 s, and a busy machine
        assert receiver.closed is not None
        assert "silent" in receiver.closed


# -- authentication --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def locked_relay(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningInstance]:
    settings = {"user": "me", "password": "s3cret: word"}
    directory = tmp_path_factory.mktemp("locked") / "relay"
    system = start(LOOPBACK, settings, directory=directory, on_fork=die_with_parent())
    yield system
    system.stop()


def test_the_right_password_is_accepted_from_every_client(locked_relay: RunningInstance) -> None:
    port = urlsplit(locked_relay.url).port
    secret = {"user": "me", "password": "s3cret: word", "allow_insecure_mechs": True}
    receiver = ProtonReceiver(f"amqp://127.0.0.1:{port}", "perf", 5, allowed_mechs="PLAIN", **secret)
    with running(receiver), closing(Amqp10Sender(locked_relay.url, group(32, presettled=False))) as sender:
        send_all(sender, bodies(5, 32), settled=False)
        wait(receiver)
    assert receiver.faults == []
    assert receiver.received == bodies(5, 32)


@pytest.mark.parametrize("credentials", ["me:wrong@", "you:s3cret@", ""])
def test_a_wrong_password_is_refused_with_a_reason(locked_relay: RunningInstance, credentials: str) -> None:
    port = urlsplit(locked_relay.url).port
    with closing(Amqp10Sender(f"amqp://{credentials}127.0.0.1:{port}", group(32, presettled=False))) as sender:
        deadline_s = time.monotonic() + TIMEOUT_S
        while sender.closed is None and time.monotonic() < deadline_s:
            sender.flush()
            sender.pump()
            time.sleep(0.01)
        assert sender.closed is not None
        assert ("rejects user" if credentials else "give a user and password") in sender.closed


def test_proton_with_a_wrong_password_is_refused(locked_relay: RunningInstance) -> None:
    port = urlsplit(locked_relay.url).port
    secret = {"user": "me", "password": "wrong", "allow_insecure_mechs": True}
    client = ProtonReceiver(f"amqp://127.0.0.1:{port}", "perf", 1, allowed_mechs="PLAIN", **secret)
    with running(client):
        wait(client)
    assert "unauthorized" in client.faults[0]
