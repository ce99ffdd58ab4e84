"""Is exactly-once really two steps on the wire, and is a certificate enough to sign in? Proton is the peer."""

import time
from contextlib import closing
from pathlib import Path
from typing import Any

from proton import Delivery, Link, Message, SSLDomain

from crescendo.load.protocols.amqp10 import Amqp10Receiver, Amqp10Sender
from crescendo.model.payload import PayloadSize
from crescendo.model.workload import Group, Settle
from crescendo.record.schema import Settlement
from crescendo.systems.certificates import Authority
from interop_peers import ProtonServer, bodies, free_port, running
from pumping import TIMEOUT_S, pumped, ready, receive_all, send_all

COUNT, SIZE = 300, 64
EXACTLY_ONCE = Group(address="queue://perf", size=PayloadSize.fixed(SIZE), settle=Settle.EXACTLY_ONCE)


class TwoSteps(ProtonServer):
    """Accepts without settling, and settles when the sender has."""

    def __init__(self, port: int, payloads: list[bytes] | None = None) -> None:
        super().__init__(port, payloads)
        self.auto_accept = self.auto_settle = False
        self.accepted_unsettled = 0
        self.settled_by_sender = 0

    def on_link_opening(self, event: Any) -> None:
        super().on_link_opening(event)
        event.link.rcv_settle_mode = event.link.remote_rcv_settle_mode
        if event.link.remote_rcv_settle_mode != Link.RCV_SECOND:
            self.faults.append("the link was not asked to settle second")

    def on_delivery(self, event: Any) -> None:
        delivery = event.delivery
        if event.link.is_receiver:
            if delivery.readable and not delivery.partial:
                super().on_message(_Arrival(event))
                delivery.update(Delivery.ACCEPTED)
                event.link.advance()
            elif delivery.updated and delivery.settled:
                self.settled_by_sender += 1
                delivery.settle()
        elif delivery.updated and delivery.remote_state == Delivery.ACCEPTED:
            self.accepted_unsettled += not delivery.settled
            delivery.settle()


class _Arrival:
    """The part of an event that `on_message` reads."""

    def __init__(self, event: Any) -> None:
        self.message = Message()
        self.message.decode(event.link.recv(event.delivery.pending))


def test_a_sender_settles_only_what_the_other_side_has_accepted() -> None:
    payloads = bodies(COUNT, SIZE)
    server = TwoSteps(free_port())
    with running(server):
        assert server.listening.wait(TIMEOUT_S)
        with closing(Amqp10Sender(f"amqp://127.0.0.1:{server.port}", EXACTLY_ONCE)) as sender:
            outcomes = send_all(sender, payloads, settled=False)
            deadline_s = time.monotonic() + TIMEOUT_S
            while server.settled_by_sender < COUNT and time.monotonic() < deadline_s:
                sender.flush()
                time.sleep(0.01)
    assert server.faults == []
    assert server.received == payloads
    assert server.settled_by_sender == COUNT
    assert sum(len(seqs) for seqs, _ in outcomes) == COUNT
    assert {settlement for _, settlement in outcomes} == {Settlement.ACCEPTED}


def test_a_receiver_accepts_and_leaves_settling_to_the_other_side() -> None:
    payloads = bodies(COUNT, SIZE)
    server = TwoSteps(free_port(), payloads)
    with running(server):
        assert server.listening.wait(TIMEOUT_S)
        with closing(Amqp10Receiver(f"amqp://127.0.0.1:{server.port}", EXACTLY_ONCE)) as receiver:
            ready(receiver).begin()
            assert receive_all(receiver, COUNT) == payloads
            deadline_s = time.monotonic() + TIMEOUT_S
            while server.accepted_unsettled < COUNT and time.monotonic() < deadline_s:
                pumped(receiver)
    assert server.faults == []
    assert server.accepted_unsettled == COUNT


class Certified(ProtonServer):
    """Accepts clients with a certificate of its authority, by SASL EXTERNAL only."""

    def __init__(self, port: int, domain: SSLDomain) -> None:
        super().__init__(port)
        self._domain = domain
        self.mechanisms: list[str] = []

    def on_start(self, event: Any) -> None:
        event.container.ssl.server = self._domain
        event.container.schedule(0.02, self)
        self._acceptor = event.container.listen(f"amqps://127.0.0.1:{self.port}")
        self.listening.set()

    def on_connection_bound(self, event: Any) -> None:
        super().on_connection_bound(event)
        event.transport.sasl().allowed_mechs("EXTERNAL")
        event.transport.require_auth(True)

    def on_connection_opening(self, event: Any) -> None:
        self.mechanisms.append(event.transport.sasl().mech)


def test_a_certificate_alone_signs_us_in(tmp_path: Path) -> None:
    authority = Authority()
    files = {"ca": authority.certificate}
    files["server"], files["server-key"] = authority.server("127.0.0.1", "localhost")
    files["client"], files["client-key"] = authority.client()
    paths = {name: tmp_path / f"{name}.pem" for name in files}
    for name, content in files.items():
        paths[name].write_bytes(content)
    domain = SSLDomain(SSLDomain.MODE_SERVER)
    domain.set_credentials(str(paths["server"]), str(paths["server-key"]), None)
    domain.set_trusted_ca_db(str(paths["ca"]))
    domain.set_peer_authentication(SSLDomain.VERIFY_PEER, str(paths["ca"]))
    server = Certified(free_port(), domain)
    payloads = bodies(10, SIZE)
    with running(server):
        assert server.listening.wait(TIMEOUT_S)
        options = f"ca={paths['ca']}&cert={paths['client']}&key={paths['client-key']}"
        group = Group(address="queue://perf", size=PayloadSize.fixed(SIZE))
        with closing(Amqp10Sender(f"amqps://127.0.0.1:{server.port}?{options}", group)) as sender:
            send_all(sender, payloads, settled=False)
    assert server.faults == []
    assert server.mechanisms == ["EXTERNAL"]
    assert server.received == payloads
