"""The control plane over a real embedded broker: joining, requests, lost peers."""

import os
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator

import psutil
import pytest

from crescendo.control import peer as peer_module
from crescendo.control.bus import Bus
from crescendo.control.embedded_broker import EmbeddedBroker
from crescendo.control.notes import Command, Failure, Hello, Identity, Note, NoteKind, Start, Statistics
from crescendo.control.peer import Peer, identity_of_this_process
from crescendo.control.topics import Topics
from crescendo.control.trust import Lab
from crescendo.model.errors import ConfigError, PeerError
from crescendo.model.peer_statistics import PeerStatistics

LAB = Lab("t0ken" * 8)
RUN = LAB.scope_of("0123456789abcdef")
TOPICS = Topics(RUN.name)
CONDUCTOR = Identity("conductor", "conductor", "host", 1, 77)
TIMEOUT_S = 30.0


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as broker:
        yield broker


@pytest.fixture
def bus(broker: EmbeddedBroker) -> Iterator[Bus]:
    bus = Bus(broker.url, RUN, CONDUCTOR, (TOPICS.replies, TOPICS.notifications))
    bus.connect(TIMEOUT_S)
    yield bus
    bus.close()


def receive(bus: Bus, wanted: Callable[[Note], bool], timeout_s: float = TIMEOUT_S) -> Note:
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        note = bus.next(0.2)
        if isinstance(note, Note) and wanted(note):
            return note
    raise AssertionError("the note did not come")


def of(command: Command) -> Callable[[Note], bool]:
    return lambda note: note.command is command


def request(command: Command, correlation: int, to: Identity, payload: dict[str, object] | None = None) -> Note:
    return Note(NoteKind.REQUEST, command, correlation, CONDUCTOR, payload or {}, to.session)


def joined(broker: EmbeddedBroker, peer_id: str, role: str = "sender") -> Peer:
    peer = Peer(broker.url, RUN, identity_of_this_process(peer_id, role))
    peer.join(TIMEOUT_S)
    return peer


def rest(bus: Bus, quiet_s: float) -> list[Note]:
    """The notes that still come."""
    return [note for note in iter(lambda: bus.next(quiet_s), None) if isinstance(note, Note)]


def test_a_peer_joins_answers_requests_reports_and_disconnects(broker: EmbeddedBroker, bus: Bus) -> None:
    peer = joined(broker, "sender-0")
    join = receive(bus, of(Command.GROUP_JOIN))
    assert join.sender == peer.identity
    assert (join.sender.host, join.sender.pid) == (socket.gethostname(), os.getpid())
    hello = Hello.from_payload(join.payload)
    assert abs(hello.realtime_offset_ns - (time.time_ns() - time.monotonic_ns())) < 10**9

    bus.publish(
        TOPICS.peer("sender-0"), request(Command.START_SENDER, 11, peer.identity, Start(123).to_payload()), qos=1
    )
    asked = peer.next_request(TIMEOUT_S)
    assert asked is not None
    assert (asked.command, asked.correlation, asked.payload) == (Command.START_SENDER, 11, {"t0_ns": 123})
    peer.accept(asked)
    answer = receive(bus, lambda note: note.kind is NoteKind.RESPONSE)
    assert (answer.command, answer.correlation, answer.sender.id) == (Command.OK, 11, "sender-0")

    statistics = Statistics(5, {"queue://a": 3}, 3, 1.5, None, 0.25, PeerStatistics(lateness_p99_ns=7.0))
    peer.report(statistics)
    assert Statistics.from_payload(receive(bus, of(Command.STATS)).payload) == statistics
    peer.finish(statistics)
    assert Statistics.from_payload(receive(bus, of(Command.NOTIFY_SUCCESS)).payload) == statistics

    peer.close()
    assert not peer.orphaned
    assert [note.command for note in rest(bus, 0.5)] == [Command.GROUP_LEAVE], "it left; no last will"


@pytest.mark.parametrize(
    ("fault", "command"),
    [("config", Command.PROTOCOL_ERROR), ("peer", Command.PROTOCOL_ERROR), ("lost", Command.INTERNAL_ERROR)],
)
def test_a_refusal_says_whose_fault_it_is(broker: EmbeddedBroker, bus: Bus, fault: str, command: Command) -> None:
    peer = joined(broker, "receiver-0", "receiver")
    bus.publish(TOPICS.peer("receiver-0"), request(Command.SET, 2, peer.identity), qos=1)
    asked = peer.next_request(TIMEOUT_S)
    assert asked is not None
    failure = Failure("connection refused", fault)  # type: ignore[arg-type]
    peer.refuse(asked, failure)
    answer = receive(bus, lambda note: note.kind is NoteKind.RESPONSE)
    assert (answer.command, Failure.from_payload(answer.payload)) == (command, failure)
    peer.close()


def test_a_repeated_request_is_handled_once(broker: EmbeddedBroker, bus: Bus) -> None:
    peer = joined(broker, "sender-3")
    for correlation in (1, 1, 2, 1, 2, 3):
        bus.publish(TOPICS.peer("sender-3"), request(Command.SET, correlation, peer.identity), qos=1)
    taken = [peer.next_request(TIMEOUT_S) for _ in range(3)]
    assert [note.correlation for note in taken if note is not None] == [1, 2, 3]
    assert peer.next_request(0.3) is None
    peer.close()


def test_a_waiting_peer_keeps_its_lease(broker: EmbeddedBroker, bus: Bus, monkeypatch: pytest.MonkeyPatch) -> None:
    heartbeat_s = 0.2
    monkeypatch.setattr(peer_module, "HEARTBEAT_NS", int(heartbeat_s * 1e9))
    begun_s = time.monotonic()
    peer = joined(broker, "sender-4")
    peer.report(Statistics(77, {"queue://a": 9}, 9))
    beats = [receive(bus, of(Command.STATS))]  # taken at once: of those that wait only the latest is kept
    assert peer.next_request(1.5 * heartbeat_s) is None
    beats.append(receive(bus, of(Command.STATS)))
    assert peer.next_request(1.5 * heartbeat_s) is None
    peer.close()
    most = 1 + (time.monotonic() - begun_s) / heartbeat_s
    beats += [note for note in rest(bus, 0.2) if note.command is Command.STATS]
    assert 2 <= len(beats) <= most  # its own report, and one per heartbeat
    assert {note.payload["messages"] for note in beats} == {9}


PEER_PROGRAM = textwrap.dedent(
    """
    import sys
    from crescendo.control.peer import Peer, identity_of_this_process
    from crescendo.control.trust import NoteScope
    scope = NoteScope(sys.argv[3], bytes.fromhex(sys.argv[4]))
    peer = Peer(sys.argv[1], scope, identity_of_this_process(sys.argv[2], "sender"))
    peer.join()
    while not peer.orphaned:
        peer.next_request(0.5)
    """
)


def peer_process(url: str, peer_id: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", PEER_PROGRAM, url, peer_id, RUN.name, RUN.key.hex()])


def test_the_last_will_of_a_killed_peer_arrives_long_before_its_lease_ends(broker: EmbeddedBroker, bus: Bus) -> None:
    process = peer_process(broker.url, "sender-9")
    try:
        receive(bus, of(Command.GROUP_JOIN))
        process.send_signal(signal.SIGKILL)
        killed = time.monotonic()
        will = receive(bus, of(Command.ABNORMAL_DISCONNECT))
        assert time.monotonic() - killed < 4.0  # it takes a few milliseconds; the lease is six seconds
        assert (will.sender.id, will.sender.pid) == ("sender-9", process.pid)
        assert Failure.from_payload(will.payload).fault == "lost"
    finally:
        process.kill()
        process.wait()


def test_a_peer_whose_broker_dies_is_orphaned_and_ends_by_itself() -> None:
    with EmbeddedBroker() as broker:
        process = peer_process(broker.url, "sender-8")
        bus = Bus(broker.url, RUN, CONDUCTOR, (TOPICS.notifications,))
        bus.connect(TIMEOUT_S)
        try:
            receive(bus, of(Command.STATS))
            os.kill(broker.pid, signal.SIGKILL)
            assert process.wait(TIMEOUT_S) == 0
            assert not bus.connected
            assert bus.next(1.0) is None
            bus.publish(TOPICS.peers, request(Command.HALT, 1, CONDUCTOR), qos=1)  # does nothing, and does not raise
        finally:
            process.kill()
            process.wait()
            bus.close()


def test_a_note_of_nearly_a_mebibyte_gets_through(broker: EmbeddedBroker, bus: Bus) -> None:
    peer = joined(broker, "sender-6")
    bus.publish(TOPICS.peer("sender-6"), request(Command.SET, 1, peer.identity, {"text": "x" * (2**20 - 400)}), qos=1)
    asked = peer.next_request(TIMEOUT_S)
    assert asked is not None
    assert len(asked.payload["text"]) == 2**20 - 400
    peer.close()


def test_closing_flushes_everything_first(broker: EmbeddedBroker, bus: Bus) -> None:
    other = Bus(broker.url, RUN, Identity("hurried", "sender", "h", 1, 5), ())
    other.connect(TIMEOUT_S)
    for number in range(200):
        other.publish(TOPICS.replies, Note(NoteKind.RESPONSE, Command.OK, number, CONDUCTOR, {}), qos=number % 2)
    other.close()
    numbers = [receive(bus, of(Command.OK)).correlation for _ in range(200)]
    assert sorted(numbers) == list(range(200))


def test_small_notes_are_not_delayed(broker: EmbeddedBroker, bus: Bus) -> None:
    peer = joined(broker, "sender-2")
    round_trips = []
    for correlation in range(41):
        began = time.monotonic()
        bus.publish(TOPICS.peer("sender-2"), request(Command.SET, correlation, peer.identity), qos=1)
        asked = peer.next_request(TIMEOUT_S)
        assert asked is not None
        peer.accept(asked)
        receive(bus, lambda note: note.kind is NoteKind.RESPONSE)
        round_trips.append(time.monotonic() - began)
    peer.close()
    # The kernel's delayed acknowledgement takes 40 ms once a connection is no longer new; without Nagle a round trip
    # takes about 5 ms. With Nagle every one would be delayed, so five fast round trips are proof on any machine.
    assert sorted(round_trips[20:])[4] < 0.040


def test_an_unreachable_broker_is_one_clear_sentence() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound but not listening: refused, and no other process can take it
        url = f"mqtt://me:secret@127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(ConfigError, match=r"cannot be reached: Connection refused$") as caught:
            Bus(url, RUN, CONDUCTOR, ()).connect(2)
    assert "secret" not in str(caught.value)


def test_a_server_that_is_not_an_mqtt_broker_is_reported() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"mqtt://127.0.0.1:{server.getsockname()[1]}"
        with pytest.raises(PeerError, match="does not answer as an MQTT broker"):
            Bus(url, RUN, CONDUCTOR, ()).connect(0.5)


@pytest.mark.parametrize("url", ["http://x", "mqtt://", "mqtt://h:port", "mqtt://h/path", "x", "mqtt://h?colour=blue"])
def test_a_wrong_control_url_names_what_would_be_right(url: str) -> None:
    with pytest.raises(ConfigError, match=r"mqtt://\[user:password@\]host\[:port\]"):
        Bus(url, RUN, CONDUCTOR, ())


def test_the_broker_leaves_nothing_behind() -> None:
    threads = threading.active_count()
    with EmbeddedBroker() as broker:
        assert broker.alive
        bus = Bus(broker.url, RUN, CONDUCTOR, (TOPICS.peers,))
        bus.connect(TIMEOUT_S)
        pid = broker.pid
        bus.close()
    assert not psutil.pid_exists(pid)
    assert threading.active_count() == threads


def test_a_suspended_broker_is_killed() -> None:
    broker = EmbeddedBroker()
    os.kill(broker.pid, signal.SIGSTOP)
    broker.close()
    assert not psutil.pid_exists(broker.pid)


def test_the_broker_ends_when_its_parent_is_killed_and_prints_nothing() -> None:
    program = (
        "import time; from crescendo.control.embedded_broker import EmbeddedBroker; broker = EmbeddedBroker(); "
        "print(broker.pid, flush=True); time.sleep(60)"
    )
    parent = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert parent.stdout is not None
    broker = psutil.Process(int(parent.stdout.readline()))
    parent.kill()
    rest, errors = parent.communicate()
    _, left = psutil.wait_procs([broker], timeout=TIMEOUT_S)
    alive = [one for one in left if one.status() != psutil.STATUS_ZOMBIE]  # not every container's init reaps zombies
    for one in alive:
        one.kill()
    assert alive == []
    assert (rest, errors) == (b"", b"")


def test_ctrl_c_at_the_terminal_does_not_reach_the_broker(broker: EmbeddedBroker) -> None:
    assert os.getpgid(broker.pid) != os.getpgid(0)
