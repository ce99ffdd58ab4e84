"""Do the JMS clients of the vendors and our own drivers agree, through real brokers, about every message?"""

import itertools
import os
import secrets
import signal
import sys
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec
import pytest

from crescendo.load.jms.child_records import HELLO, MAGIC, RECORD_BYTES, VERSION
from crescendo.load.jms.jms_engines import await_ready as await_jvm
from crescendo.load.jms.jvm_child import JvmChild
from crescendo.load.protocols.openwire import OpenWireReceiver
from crescendo.model.errors import PeerError
from crescendo.model.payload import PayloadSize
from crescendo.model.protocols import protocol_of
from crescendo.model.units import Duration
from crescendo.model.workload import Group, PingPongMode, Settle, WindowMode
from crescendo.systems.instance import RunningInstance
from crescendo.wire.openwire.identifiers import QueueDestination
from engine_threads import TAG, until
from jms_peers import LedgerRows, jms_receives, jms_sends, jvm, we_receive, we_send
from openwire_peers import openwire_session
from pumping import ready

pytestmark = pytest.mark.shares("activemq", "artemis")

MANY = 5_000
amqp10 = pytest.param("amqp10", marks=pytest.mark.soak)  # the suite has OpenWire and Core
PROTOCOLS = ("openwire", amqp10)
PATHS = [
    ("activemq", "openwire"),
    pytest.param("activemq", "amqp10", marks=pytest.mark.soak),
    ("artemis", "openwire"),
    pytest.param("artemis", "amqp10", marks=pytest.mark.soak),
    ("artemis", "core"),
]
each_path = pytest.mark.parametrize(("kind", "protocol"), PATHS)


@pytest.fixture(scope="module", params=["activemq", pytest.param("artemis", marks=pytest.mark.soak)])
def broker(request: pytest.FixtureRequest) -> RunningInstance:
    found: RunningInstance = request.getfixturevalue(request.param)
    return found


def url_of(broker: RunningInstance, protocol: str = "openwire") -> str:
    return broker.endpoints[protocol_of(protocol).endpoint]


def group(protocol: str = "openwire", size: int = 256, *, options: str = "", topic: bool = False, **more: Any) -> Group:
    address = f"{'topic' if topic else 'queue'}://jms-{secrets.token_hex(6)}{options}"
    given = {"rate": 0.0, "client": "jms", "size": PayloadSize.fixed(size)} | more
    return Group(address=address, protocol=protocol, **given)


def received(rows: LedgerRows, count: int) -> None:
    until(lambda: len(rows.received) >= count)


# -- one end the vendor's client, the other end ours -----------------------------------------------------------------


@each_path
def test_the_jms_client_receives_all_that_we_send_and_we_all_that_it_sends(
    kind: str, protocol: str, request: pytest.FixtureRequest
) -> None:
    url = url_of(request.getfixturevalue(kind), protocol)
    forth, back = group(protocol, rate=5000.0), group(protocol, mode=WindowMode(1000))
    there, here = LedgerRows(), LedgerRows()
    with (
        jms_receives(url, forth, there),
        we_receive(url, back, here),
        jms_sends(url, back, MANY, here) as theirs,
        we_send(url, forth, MANY, there) as ours,
    ):
        ours.join()
        theirs.join()
        received(there, MANY)
        received(here, MANY)
    there.assert_complete(MANY)
    here.assert_complete(MANY)


@pytest.mark.soak
@each_path
def test_200_000_messages_between_the_jms_client_and_itself(
    kind: str, protocol: str, request: pytest.FixtureRequest
) -> None:
    broker: RunningInstance = request.getfixturevalue(kind)
    url, some, rows = url_of(broker, protocol), group(protocol, mode=WindowMode(1000)), LedgerRows()
    with jms_receives(url, some, rows), jms_sends(url, some, 200_000, rows) as sending:
        sending.join()
        received(rows, 200_000)
    rows.assert_complete(200_000)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_at_most_once_with_a_slow_receiver_and_many_sizes(activemq: RunningInstance, protocol: str) -> None:
    sizes = PayloadSize.parse([{"size": 64, "weight": 3}, {"size": 3000}])
    some = group(protocol, size=64, settle=Settle.AT_MOST_ONCE, receive_rate=1000.0)
    some, rows = msgspec.structs.replace(some, size=sizes), LedgerRows()
    url = url_of(activemq, protocol)
    begun = time.monotonic()
    with jms_receives(url, some, rows), jms_sends(url, some, 300, rows) as sending:
        sending.join()
        received(rows, 300)
    assert time.monotonic() - begun >= 0.3, "a receiver of 1,000 msg/s takes a millisecond for each"
    rows.assert_complete(300, settled=False)


def test_the_next_ping_waits_for_the_jms_clients_answer(activemq: RunningInstance) -> None:
    some, rows, count = group(mode=PingPongMode()), LedgerRows(), 50
    with jms_receives(url_of(activemq), some, rows), jms_sends(url_of(activemq), some, count, rows) as sending:
        sending.join()
    one_way, round_trip = dict(rows.spans["one way"]), dict(rows.spans["round trip"])
    assert sorted(round_trip) == list(range(count))
    assert all(0 < one_way[seq] <= round_trip[seq] for seq in range(count))
    sent_ns = [rows.sent_ns[seq] for seq in range(count)]
    for seq, (sent, following) in enumerate(itertools.pairwise(sent_ns)):
        assert following >= sent + round_trip[seq], "it was sent before the answer"


# -- what our OpenWire driver does, as the real client sees it -------------------------------------------------------


def test_a_durable_subscription_is_one_for_both_clients(broker: RunningInstance) -> None:
    """Made by one, fed while nobody is there, and read by the other."""
    url = url_of(broker)
    topic = group(topic=True, options=f"?durable=yes&subscription=kept-{secrets.token_hex(4)}", rate=5000.0)
    mine = msgspec.structs.replace(topic, client=None)
    rows = LedgerRows()
    with jvm("receiver", url, topic):
        pass
    with we_send(url, mine, 100, rows) as sending:
        sending.join()
    with we_receive(url, mine, rows):
        received(rows, 100)
    rows.assert_complete(100)
    rows = LedgerRows()
    with jms_sends(url, topic, 100, rows) as sending:
        sending.join()
    with jms_receives(url, topic, rows):
        received(rows, 100)
    rows.assert_complete(100)


def test_both_clients_select_by_the_properties_of_the_other(broker: RunningInstance) -> None:
    url, name = url_of(broker), f"selected-{secrets.token_hex(6)}"
    for client, other in (("jms", None), (None, "jms")):
        send = {"jms": jms_sends, None: we_send}[client]
        receive = {"jms": jms_receives, None: we_receive}[other]
        rows, blue_rows = LedgerRows(), LedgerRows()
        red = Group(address=f"queue://{name}", protocol="openwire", client=client, properties={"colour": "red"})
        blue = msgspec.structs.replace(red, properties={"colour": "blue"})
        wanted = Group(address=f"queue://{name}?selector=colour='red'", protocol="openwire", client=other)
        with (
            receive(url, wanted, rows),
            send(url, blue, 50, blue_rows) as unwanted,
            send(url, red, 50, rows) as sending,
        ):
            unwanted.join()
            sending.join()
            received(rows, 50)
        rows.assert_complete(50)
        assert blue_rows.settled == set(range(50))


def test_the_jms_client_gets_what_we_commit_and_not_what_we_roll_back(broker: RunningInstance) -> None:
    some, rows = group(), LedgerRows()
    queue = QueueDestination(some.destination)
    with jms_receives(url_of(broker), some, rows), openwire_session(url_of(broker), secrets.token_hex(4)) as session:
        for number, (end, size) in enumerate((("rollback", 10), ("commit", 11))):
            session.done(session.connection.begin(number))
            session.send(queue, bytes(size), transaction=number)
            session.done(getattr(session.connection, end)(number))
        session.send(queue, bytes(12))
        until(lambda: len(rows.sizes) >= 2)
    assert rows.sizes == [11, 12]


def test_both_clients_see_what_the_other_left_unacknowledged_as_redelivered(broker: RunningInstance) -> None:
    url, some, rows = url_of(broker), group(rate=5000.0), LedgerRows()
    mine = msgspec.structs.replace(some, client=None)
    with we_send(url, mine, 5, rows) as sending:
        sending.join()
    channel = ready(OpenWireReceiver(url, mine))
    channel.begin()
    seen: list[int] = []
    until(lambda: seen.extend(len(arrived.payloads) for arrived in channel.pump()) or sum(seen) == 5)
    channel.close()  # nothing is acknowledged
    with jms_receives(url, some, rows):
        received(rows, 5)
    assert rows.received == list(range(5))
    assert rows.redelivered == [True] * 5

    slow, rows = group(delay=Duration(60 * 10**9)), LedgerRows()
    mine = msgspec.structs.replace(slow, client=None, delay=None)
    with jms_receives(url, slow, rows) as receiving, we_send(url, mine, 1, rows) as sending:
        sending.join()
        received(rows, 1)
        os.kill(receiving.child.pid, signal.SIGKILL)  # while it is busy with the message, before it acknowledges
        until(lambda: receiving.engine.failure is not None)
    with we_receive(url, mine, rows):
        received(rows, 2)
    assert rows.redelivered == [False, True]


# -- refusals, and how it ends ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_wrong_password_is_refused_in_the_brokers_words(broker: RunningInstance, protocol: str) -> None:
    parts = urlsplit(url_of(broker, protocol))
    url = f"{parts.scheme}://nobody:secret-word@{parts.hostname}:{parts.port}"
    with (
        pytest.raises(PeerError, match=r"(?i)the system refused: .*(password|security|auth)") as refused,
        jvm("sender", url, group(protocol)),
    ):
        pass
    assert "secret-word" not in str(refused.value)


def test_the_password_is_not_on_the_command_line_and_the_jvm_dies_with_its_connection_lost(
    activemq: RunningInstance,
) -> None:
    url, some, rows = url_of(activemq), group(rate=1000.0), LedgerRows()
    with jms_sends(url, some, 10**6, rows) as sending:
        child = sending.child
        shown = Path(f"/proc/{child.pid}/cmdline").read_bytes() + Path(f"/proc/{child.pid}/environ").read_bytes()
        assert urlsplit(url).password.encode() not in shown
        until(lambda: len(rows.sent) > 10)
        os.kill(child.pid, signal.SIGKILL)
        sending.join()
        assert "was killed by SIGKILL" in sending.engine.failure
        assert sending.control.kinds == ["disconnect"]


def test_a_jvm_that_was_stopped_shows_as_our_own_delay(activemq: RunningInstance) -> None:
    """Nobody held it back: every message that was due meanwhile is late by our own fault."""
    some, rows = group(rate=1000.0), LedgerRows()
    with jms_sends(url_of(activemq), some, 4000, rows) as sending:  # so many that most are due after the stop
        until(lambda: len(rows.sent) > 200)
        os.kill(sending.child.pid, signal.SIGSTOP)
        time.sleep(0.5)
        os.kill(sending.child.pid, signal.SIGCONT)
        sending.join()
        statistics = sending.engine.statistics(time.monotonic_ns()).values
    assert statistics.own_delay_max_ns is not None
    assert statistics.own_delay_max_ns > 400_000_000
    assert statistics.own_delay_p99_ns is not None
    assert statistics.own_delay_p99_ns > 300_000_000, "not only the first message is late"


def test_a_jvm_of_another_version_is_refused(tmp_path: Path) -> None:
    other = tmp_path / "java"
    records = (RECORD_BYTES, HELLO, MAGIC, VERSION + 1)
    other.write_text(
        f"#!{sys.executable}\nimport struct, sys, time\nsize, hello, magic, version = {records}\n"
        "record = struct.pack('>B7xqqq', hello, magic, version, time.monotonic_ns())\n"
        "sys.stdout.buffer.write(record.ljust(size, b'\\0'))\n"
        "sys.stdout.flush()\ntime.sleep(60)\n"
    )
    other.chmod(0o755)
    child = JvmChild([str(other)], "sender", TAG, [], tmp_path / "jvm")
    child.connections = 1
    with pytest.raises(PeerError, match="of another version; run: crescendo system install jms-clients"):
        await_jvm(child)
