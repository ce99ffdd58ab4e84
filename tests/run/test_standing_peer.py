"""Does a standing peer end the process of a run whose conductor was lost before that process joined?"""

import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from crescendo.control.notes import Command, Identity
from crescendo.control.request_payloads import BUSY, RoleAssignment
from crescendo.control.trust import Lab
from crescendo.run import standing_peer
from crescendo.run.lab_client import LabClient
from crescendo.run.standing_peer import StandingPeer
from crescendo.systems.instance import RunningInstance

LAB = Lab("0a7a" * 12)
RUN = "feedfacefeedfa11"
TIMEOUT_S = 60.0
ORPHAN_S = 0.3


@pytest.fixture
def peer(mosquitto: RunningInstance, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LabClient]:
    """A standing peer, and a client of its lab that sees it."""
    monkeypatch.setattr(standing_peer, "_ORPHAN_S", ORPHAN_S)
    standing = StandingPeer(mosquitto.url, LAB, "sender", "sender-a", tmp_path / "data")
    thread = threading.Thread(target=standing.run)
    thread.start()
    try:
        with LabClient(mosquitto.url, LAB, "watching") as client:
            yield client
            client.ask(LAB.scope, state_of(client)[0], Command.HALT)
    finally:
        thread.join(TIMEOUT_S)
    assert not thread.is_alive()


def state_of(client: LabClient) -> tuple[Identity, str]:
    deadline_s = time.monotonic() + TIMEOUT_S
    while time.monotonic() < deadline_s:
        for identity, pong, _ in client.ping(LAB.scope, enough=1):
            return identity, pong.state
    pytest.fail("it does not answer")


def processes_of_runs() -> list[psutil.Process]:
    return [one for one in psutil.Process().children() if "launched_peer" in " ".join(one.cmdline())]


def test_the_process_of_a_run_that_was_lost_is_ended(mosquitto: RunningInstance, peer: LabClient) -> None:
    """It waits for a conductor whose last will nobody can hear any more."""
    identity, _ = state_of(peer)
    recruiting = LabClient(mosquitto.url, LAB, f"run-{RUN}")
    recruiting.connect()
    recruiting.ask(LAB.scope, identity, Command.ROLE_ASSIGN, RoleAssignment(RUN, "sender-0"))
    assert state_of(peer)[1] == BUSY
    assert len(processes_of_runs()) == 1
    time.sleep(2 * ORPHAN_S)
    assert state_of(peer)[1] == BUSY, "it is left alone while its run is there"
    connection = recruiting._bus._client.socket()
    assert isinstance(connection, socket.socket)
    connection.shutdown(socket.SHUT_RDWR)  # as when the kernel closes it for a process that was killed
    deadline_s = time.monotonic() + TIMEOUT_S
    while state_of(peer)[1] == BUSY:
        assert time.monotonic() < deadline_s
        time.sleep(0.05)
    assert processes_of_runs() == []
    recruiting.close()
