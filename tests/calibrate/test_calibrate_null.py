"""Do null servers work with any client, and do they count what was really sent?"""

import struct
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from crescendo.calibrate.engine_trial import receive, send, unpaced_group
from crescendo.calibrate.null_process import TAG, NullServerCounts, serve_one
from crescendo.calibrate.registry import calibrated_protocols, null_server_of
from crescendo.load.assignment import Quota
from crescendo.model.errors import PeerError
from crescendo.model.pacer import UNLIMITED
from crescendo.model.protocols import protocol_of
from crescendo.net.sockets import connect, listen
from crescendo.record.schema import RECEIVED
from crescendo.record.writer import RowSink
from foreign_clients_of_null import NAME, run

SIZE = 300
COUNT = 50

# Bytes of one message on the wire, from the specifications: AMQP 0-9-1 2.3.5 (method, header and body frame, 8 bytes
# around each), MQTT 5 3.3 (type, two bytes of length, topic, no properties).
UNIT = {
    "amqp091": (8 + 4 + 2 + 1 + 1 + len(NAME) + 1) + (8 + 2 + 2 + 8 + 2) + (8 + SIZE),
    "mqtt": 1 + 2 + 2 + len(NAME) + 1 + SIZE,
}
# The overhead of the others varies: STOMP has named headers, AMQP 1.0 values have several widths.
MIN_OVERHEAD, MAX_OVERHEAD, CLOSE_BYTES = 20, 200, 300

Serve = Callable[[str, bool], tuple[int, Future[NullServerCounts]]]


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Starts a null server in a thread; returns its port and its future counts."""
    listeners = []
    with ThreadPoolExecutor(1) as pool:

        def start(protocol: str, source: bool) -> tuple[int, Future[NullServerCounts]]:
            listener = listen()
            listener.settimeout(20)
            listeners.append(listener)
            counts = pool.submit(serve_one, listener, null_server_of(protocol)(SIZE, source=source), source=source)
            return listener.getsockname()[1], counts

        yield start
    for listener in listeners:
        listener.close()


@pytest.mark.parametrize("protocol", sorted(calibrated_protocols()))
def test_a_sink_counts_the_bytes_of_a_foreign_sender(protocol: str, serve: Serve) -> None:
    port, counts = serve(protocol, False)
    run("sends", protocol, port, COUNT, SIZE)
    octets = counts.result(30).octets
    if protocol in UNIT:
        assert COUNT * UNIT[protocol] <= octets <= COUNT * UNIT[protocol] + CLOSE_BYTES
    else:
        assert COUNT * (SIZE + MIN_OVERHEAD) <= octets <= COUNT * (SIZE + MAX_OVERHEAD) + CLOSE_BYTES


@pytest.mark.parametrize("protocol", sorted(calibrated_protocols()))
def test_a_foreign_receiver_reads_stamped_messages_from_a_source(protocol: str, serve: Serve) -> None:
    port, counts = serve(protocol, True)
    bodies = run("receives", protocol, port, COUNT, SIZE)
    assert counts.result(30).messages >= COUNT
    assert len(bodies) == COUNT
    for number, body in enumerate(bodies):
        magic, sender, tag, seq, intended_ns, sent_ns = struct.unpack(">HHIQqq", body[:32])
        assert (len(body), magic, sender, tag, seq) == (SIZE, 0xC501, 0, TAG, number)
        assert intended_ns == sent_ns > 0


@pytest.mark.parametrize("protocol", sorted(calibrated_protocols()))
def test_our_senders_and_a_sink_agree_about_every_message(protocol: str, serve: Serve) -> None:
    port, counts = serve(protocol, False)
    result = send(
        f"{protocol_of(protocol).scheme}://127.0.0.1:{port}",
        unpaced_group(protocol, SIZE),
        Quota(20_000, UNLIMITED),
        tag=1,
    )
    octets = counts.result(30).octets
    assert result.messages == 20_000
    assert result.batch_share == 1.0
    assert result.runs * result.run_length == pytest.approx(20_000)
    assert octets >= 20_000 * SIZE
    # The bytes beyond whole messages are the close frame; one message more or less would show.
    if protocol in UNIT:
        assert 0 <= octets - 20_000 * UNIT[protocol] < CLOSE_BYTES


@pytest.mark.parametrize("protocol", sorted(calibrated_protocols()))
def test_our_receivers_take_no_more_than_a_source_delivered(protocol: str, serve: Serve) -> None:
    port, counts = serve(protocol, True)
    arrived = threading.Event()

    class Rows(RowSink):
        rows = 0

        def append(self, table: str, rows: int, *columns: object) -> None:
            Rows.rows += rows if table == RECEIVED else 0
            if Rows.rows >= 20_000:
                arrived.set()

        def tick(self, now_ns: int) -> None:
            pass

    url = f"{protocol_of(protocol).scheme}://127.0.0.1:{port}"
    result = receive(url, unpaced_group(protocol, SIZE), tag=TAG, stop=lambda _: arrived.is_set(), log=Rows())
    assert 20_000 <= result.messages == Rows.rows <= counts.result(30).messages
    assert result.batch_share > 0.9


def test_a_client_that_disconnects_during_the_handshake_is_reported(serve: Serve) -> None:
    port, counts = serve("mqtt", False)
    connect("127.0.0.1", port).close()
    with pytest.raises(PeerError, match="disconnected before the handshake was over"):
        counts.result(30)
