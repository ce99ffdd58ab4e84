"""Do bytes pass through TLS intact, and does an error quote the peer if they do not?"""

import contextlib
import hashlib
import random
import select
import socket
import ssl
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from certificate_authority import Authority
from crescendo.model.errors import PeerError
from crescendo.net.tls import Tls, server_context
from crescendo.net.transport import PlainTransport, TlsTransport, Transport, connect
from tls_server import PATIENCE_S, context_of, serving


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"), "lab")


@pytest.fixture(scope="module")
def server(authority: Authority) -> ssl.SSLContext:
    return context_of(authority.sign("server"))


def read(transport: Transport, buffer: memoryview) -> int:
    """Read once, as a loop over many connections does: wait only when nothing is pending."""
    deadline_s = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline_s:
        if not transport.pending:
            select.select([transport], [], [], 1.0)
        count = transport.recv_into(buffer)
        if count is not None:
            return count
    raise AssertionError("nothing arrived")


def read_until_error(transport: Transport) -> str:
    try:
        while read(transport, memoryview(bytearray(100))):
            pass
    except PeerError as err:
        return str(err)
    raise AssertionError("it ended without an error")


def write(transport: Transport, outgoing: deque[memoryview]) -> None:
    while not transport.flush(outgoing):
        select.select([], [transport], [], 1.0)


def until_end(secure: ssl.SSLSocket) -> None:
    while secure.recv(65536):
        pass


# -- intact ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_ten_megabytes_return_intact_through_small_buffers(authority: Authority, version: ssl.TLSVersion) -> None:
    context = context_of(authority.sign(f"server-{version.name}"))
    context.maximum_version = version
    sent = random.Random(7).randbytes(10_000_000)
    got = hashlib.sha256()

    def echo(secure: ssl.SSLSocket) -> None:
        while data := secure.recv(65536):
            secure.sendall(data)

    with serving(context, echo) as port:
        transport = connect("127.0.0.1", port, tls=Tls(ca=authority.file))
        draw = random.Random(3)
        outgoing: deque[memoryview] = deque()
        begin = 0
        while begin < len(sent):  # from single bytes to more than any buffer in between holds
            size = draw.choice([1, 7, 300, 17_000, 900_000])
            outgoing.append(memoryview(sent)[begin : begin + size])
            begin += size
        received = 0
        while received < len(sent):
            done = transport.flush(outgoing)
            # Far less than a record: most data must be read without any event from the kernel.
            buffer = memoryview(bytearray(draw.choice([1, 100, 5000, 70_000])))
            if not transport.pending:
                select.select([transport], [] if done else [transport], [], PATIENCE_S)
            count = transport.recv_into(buffer)
            if count is not None:
                assert count > 0
                got.update(buffer[:count])
                received += count
        transport.close()
    assert got.hexdigest() == hashlib.sha256(sent).hexdigest()


def test_data_that_the_kernel_cannot_report_is_pending(authority: Authority, server: ssl.SSLContext) -> None:
    with serving(server, lambda secure: secure.sendall(b"abcdef")) as port:
        transport = connect("127.0.0.1", port, tls=Tls(ca=authority.file))
        one = memoryview(bytearray(2))
        assert (read(transport, one), bytes(one)) == (2, b"ab")
        assert transport.pending
        assert (transport.recv_into(one), bytes(one)) == (2, b"cd")
        transport.close()


def test_the_queue_is_empty_only_when_the_kernel_has_everything(authority: Authority, server: ssl.SSLContext) -> None:
    go = threading.Event()
    sent = bytes(30_000_000)  # more than both sockets hold
    got: list[int] = []

    def read_all(secure: ssl.SSLSocket) -> None:
        assert go.wait(PATIENCE_S)
        while sum(got) < len(sent):
            got.append(len(secure.recv(1 << 20)))

    with serving(server, read_all) as port:
        transport = connect("127.0.0.1", port, tls=Tls(ca=authority.file))
        outgoing = deque([memoryview(sent)])
        while not transport.flush(outgoing) and select.select([], [transport], [], 0.2)[1]:
            pass
        assert outgoing
        assert not transport.flush(outgoing)
        go.set()
        write(transport, outgoing)
        assert not outgoing
        transport.close()
    assert sum(got) == len(sent)


def test_send_writes_what_fits_and_0_means_retry(authority: Authority, server: ssl.SSLContext) -> None:
    go = threading.Event()
    got: list[bytes] = []

    def read_all(secure: ssl.SSLSocket) -> None:
        assert go.wait(PATIENCE_S)
        while data := secure.recv(1 << 20):
            got.append(data)

    sent = random.Random(1).randbytes(20_000_000)
    with serving(server, read_all) as port:
        transport = connect("127.0.0.1", port, tls=Tls(ca=authority.file))
        rest = memoryview(sent)
        refused = 0
        while rest:
            count = transport.send(rest)
            rest = rest[count:]
            if not count:
                refused += 1
                go.set()
                select.select([], [transport], [], 1.0)
        assert refused
        write(transport, deque())
        transport.close()
    assert b"".join(got) == sent


def test_a_close_notify_is_the_end_and_not_an_error(authority: Authority, server: ssl.SSLContext) -> None:
    def send_and_close(secure: ssl.SSLSocket) -> None:
        secure.sendall(b"the last")
        with contextlib.suppress(OSError):
            secure.unwrap()

    with serving(server, send_and_close) as port:
        transport = connect("127.0.0.1", port, tls=Tls(ca=authority.file))
        buffer = memoryview(bytearray(100))
        assert (read(transport, buffer), bytes(buffer[:8])) == (8, b"the last")
        assert read(transport, buffer) == 0
        assert read(transport, buffer) == 0
        transport.close()


def test_close_sends_a_close_notify(authority: Authority, server: ssl.SSLContext) -> None:
    ends: list[bytes] = []
    with serving(server, lambda secure: ends.extend([secure.recv(10), secure.recv(10)])) as port:
        transport = connect("127.0.0.1", port, tls=Tls(ca=authority.file))
        write(transport, deque([memoryview(b"hello")]))
        transport.close()
    assert ends == [b"hello", b""]  # without a close_notify Python's server raises an error instead


def test_without_tls_it_is_the_socket_and_nothing_more() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        transport = connect("127.0.0.1", listener.getsockname()[1])
        assert isinstance(transport, PlainTransport)
        peer, _ = listener.accept()
        with peer:
            buffer = memoryview(bytearray(100))
            assert transport.recv_into(buffer) is None
            assert transport.send(memoryview(b"one ")) == 4
            write(transport, deque([memoryview(b"two "), memoryview(b"three")]))
            peer.settimeout(PATIENCE_S)
            assert peer.recv(13, socket.MSG_WAITALL) == b"one two three"
            peer.sendall(b"hello")
            assert read(transport, buffer) == 5
        assert read(transport, buffer) == 0
        transport.close()
        assert transport.fileno() == -1


def test_reading_completes_the_handshake_of_the_accepting_side(authority: Authority) -> None:
    """As in the relay. The client is Python's own."""
    context = server_context(*authority.sign("relay"), None, None)
    trusting = ssl.create_default_context(cafile=authority.file)
    answers: list[bytes] = []

    def ask() -> None:
        with (
            socket.create_connection(listener.getsockname(), PATIENCE_S) as raw,
            trusting.wrap_socket(raw, server_hostname="127.0.0.1") as secure,
        ):
            secure.sendall(b"question")
            answers.append(secure.recv(100))

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=ask)
        thread.start()
        accepted, _ = listener.accept()
        accepted.setblocking(False)
        transport = TlsTransport(accepted, context, server_side=True)
        buffer = memoryview(bytearray(100))
        assert (read(transport, buffer), bytes(buffer[:8])) == (8, b"question")
        write(transport, deque([memoryview(b"answer")]))
        thread.join(PATIENCE_S)
        transport.close()
    assert answers == [b"answer"]


# -- refused ---------------------------------------------------------------------------------------------------------


def refusal(context: ssl.SSLContext, tls: Tls) -> str:
    with serving(context, until_end) as port, pytest.raises(PeerError) as caught:
        connect("127.0.0.1", port, tls=tls)
    assert f"127.0.0.1:{port}" in str(caught.value)
    return str(caught.value)


def test_a_certificate_of_an_untrusted_authority_is_refused(
    authority: Authority, server: ssl.SSLContext, tmp_path: Path
) -> None:
    stranger = Authority(tmp_path, "stranger")
    assert "certificate verify failed: unable to get local issuer" in refusal(server, Tls(ca=stranger.file))
    assert "certificate verify failed" in refusal(server, Tls())  # nor does this host trust our authority


def test_a_certificate_for_another_host_is_refused(authority: Authority) -> None:
    context = context_of(authority.sign("elsewhere", host="broker.example"))
    reason = refusal(context, Tls(ca=authority.file))
    assert "certificate verify failed: IP address mismatch, certificate is not valid for '127.0.0.1'" in reason
    with serving(context, until_end) as port:
        connect("127.0.0.1", port, tls=Tls(ca=authority.file, server_name="broker.example")).close()


def test_an_expired_certificate_is_refused(authority: Authority) -> None:
    context = context_of(authority.sign("expired", days=-1))
    assert "certificate verify failed: certificate has expired" in refusal(context, Tls(ca=authority.file))


def test_without_verification_any_certificate_is_accepted(authority: Authority) -> None:
    with serving(context_of(authority.sign("expired-too", days=-1)), until_end) as port:
        connect("127.0.0.1", port, tls=Tls(verify=False)).close()


def with_clients(authority: Authority, version: ssl.TLSVersion) -> ssl.SSLContext:
    context = context_of(authority.sign(f"strict-{version.name}"), clients=authority.file)
    context.maximum_version = version
    return context


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_client_without_a_certificate_learns_that_one_is_required(
    authority: Authority, version: ssl.TLSVersion
) -> None:
    """TLS 1.2 reports it during the handshake; TLS 1.3 after our side has completed it, perhaps while we write."""
    with serving(with_clients(authority, version), until_end) as port:
        try:
            transport = connect("127.0.0.1", port, tls=Tls(ca=authority.file))
        except PeerError as err:
            reason = str(err)
        else:
            for _ in range(20):
                transport.flush(deque([memoryview(b"AMQP")]))
                time.sleep(0.01)  # by then the server has most likely closed, so that writing fails first
            reason = read_until_error(transport)
            transport.close()
    alert = {ssl.TLSVersion.TLSv1_2: "handshake failure", ssl.TLSVersion.TLSv1_3: "certificate required"}
    assert f"the system ended TLS with the alert: {alert[version]}" in reason


def test_a_certificate_of_an_unknown_authority_is_refused_by_the_server(authority: Authority, tmp_path: Path) -> None:
    certificate, key = Authority(tmp_path, "stranger").sign("nobody")
    with serving(with_clients(authority, ssl.TLSVersion.TLSv1_3), until_end) as port:
        tls = Tls(ca=authority.file, certificate=certificate, key=key)
        transport = connect("127.0.0.1", port, tls=tls)
        assert "the system ended TLS with the alert: unknown ca" in read_until_error(transport)
        transport.close()


def test_a_client_with_a_valid_certificate_is_accepted(authority: Authority) -> None:
    certificate, key = authority.sign("ada")
    names: list[object] = []

    def note(secure: ssl.SSLSocket) -> None:
        names.append((secure.getpeercert() or {}).get("subject"))

    with serving(with_clients(authority, ssl.TLSVersion.TLSv1_3), note) as port:
        tls = Tls(ca=authority.file, certificate=certificate, key=key)
        transport = connect("127.0.0.1", port, tls=tls)
        assert "closed the connection" in read_until_error(transport)  # without a close_notify
        transport.close()
    assert names == [((("commonName", "ada"),),)]


# -- broken ----------------------------------------------------------------------------------------------------------


def test_a_truncated_stream_is_an_error_after_its_last_data(authority: Authority, server: ssl.SSLContext) -> None:
    def shut_down(secure: ssl.SSLSocket) -> None:
        secure.sendall(b"half a mess")
        secure.shutdown(socket.SHUT_RDWR)

    with serving(server, shut_down) as port:
        transport = connect("127.0.0.1", port, tls=Tls(ca=authority.file))
        buffer = memoryview(bytearray(100))
        assert (read(transport, buffer), bytes(buffer[:11])) == (11, b"half a mess")
        assert read_until_error(transport) == "the system closed the connection in the middle of TLS"
        transport.close()


@contextlib.contextmanager
def raw_server(serve: Callable[[socket.socket], None]) -> Iterator[int]:
    """A server without TLS."""

    def serve_one() -> None:
        accepted, _ = listener.accept()
        with accepted:
            accepted.settimeout(PATIENCE_S)
            serve(accepted)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve_one)
        thread.start()
        yield listener.getsockname()[1]
        thread.join(PATIENCE_S)


def test_a_handshake_that_never_completes_ends_with_the_timeout() -> None:
    over = threading.Event()
    with raw_server(lambda _: over.wait(PATIENCE_S) and None) as port:
        with pytest.raises(PeerError, match=r"the TLS handshake did not complete within 0\.3 s"):
            connect("127.0.0.1", port, tls=Tls(verify=False), timeout_s=0.3)
        over.set()


def test_a_server_without_tls_is_reported_as_such() -> None:
    def answer(accepted: socket.socket) -> None:
        accepted.recv(10)
        accepted.sendall(b"AMQP\x00\x01\x00\x00 and more of it")
        accepted.recv(10_000)

    with raw_server(answer) as port, pytest.raises(PeerError, match="does not speak TLS on this port"):
        connect("127.0.0.1", port, tls=Tls(verify=False))


def test_a_close_during_the_handshake_is_reported_as_such() -> None:
    def read_and_close(accepted: socket.socket) -> None:
        accepted.recv(10_000)

    with (
        raw_server(read_and_close) as port,
        pytest.raises(PeerError, match="closed the connection during the TLS handshake"),
    ):
        connect("127.0.0.1", port, tls=Tls(verify=False))


def test_garbage_instead_of_records_is_an_error_and_not_a_hang(authority: Authority, server: ssl.SSLContext) -> None:
    def scribble(secure: ssl.SSLSocket) -> None:
        secure.sendall(b"fine")
        with socket.socket(fileno=secure.detach()) as raw:
            raw.sendall(bytes(range(256)) * 8)

    with serving(server, scribble) as port:
        transport = connect("127.0.0.1", port, tls=Tls(ca=authority.file))
        assert read_until_error(transport)
        transport.close()
