"""Does the kernel say when unread bytes arrived, also long after that?"""

import socket
import time
from collections.abc import Iterator

import pytest

from crescendo.net.arrival_time import fill_stamped, oldest_unread_ns, stamp_arrivals
from crescendo.net.sockets import listen

MS = 1_000_000
_ENABLED_WITHIN_S = 10  # the kernel begins to stamp a while after it was first asked to


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Two ends of a TCP connection; what arrives at the second is stamped."""
    with listen() as listener:
        sending = socket.create_connection(listener.getsockname())
        receiving = listener.accept()[0]
    with sending, receiving:
        receiving.setblocking(False)
        stamp_arrivals(receiving)
        deadline_s = time.monotonic() + _ENABLED_WITHIN_S
        while oldest_unread_ns(receiving) is None:
            assert time.monotonic() < deadline_s
            sending.send(b"?")
            time.sleep(0.01)
            if oldest_unread_ns(receiving) is None:
                receiving.recv(100)
        receiving.recv(100)
        yield sending, receiving


@pytest.mark.quiet
def test_the_time_of_arrival_is_known_and_peeking_leaves_everything_unread(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    sending, receiving = pair
    before_ns = time.monotonic_ns()
    sending.send(b"first")
    after_ns = time.monotonic_ns()
    time.sleep(0.05)
    for _ in range(2):
        arrived_ns = oldest_unread_ns(receiving)
        assert arrived_ns is not None
        assert before_ns - MS <= arrived_ns <= after_ns + 10 * MS
        assert arrived_ns < time.monotonic_ns() - 30 * MS
    buffer = memoryview(bytearray(100))
    assert fill_stamped(receiving, buffer) == (5, pytest.approx(arrived_ns, abs=MS))
    assert bytes(buffer[:5]) == b"first"
    assert fill_stamped(receiving, buffer) == (None, None)
    sending.close()
    time.sleep(0.01)
    assert fill_stamped(receiving, buffer) == (0, None)


def test_nothing_unread_has_no_time(pair: tuple[socket.socket, socket.socket]) -> None:
    sending, receiving = pair
    assert oldest_unread_ns(receiving) is None
    sending.close()
    time.sleep(0.01)
    assert oldest_unread_ns(receiving) is None  # the end of the stream is not a byte


def test_a_socket_that_was_not_asked_has_no_time(pair: tuple[socket.socket, socket.socket]) -> None:
    sending, receiving = pair
    receiving.send(b"x")
    time.sleep(0.01)
    assert oldest_unread_ns(sending) is None


def test_a_stamp_from_before_the_clock_was_set_is_ignored(
    pair: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    sending, receiving = pair
    sending.send(b"x")
    time.sleep(0.01)
    earlier_ns = time.time_ns() - 10**9
    monkeypatch.setattr(time, "time_ns", lambda: earlier_ns)
    assert oldest_unread_ns(receiving) is None
