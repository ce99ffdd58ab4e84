"""Does each connection close only when the system has answered, or the timeout has passed?"""

import contextlib
import threading
import time
from collections.abc import Iterator

import pytest

from crescendo.load.engine.graceful_close import close_gracefully
from load_fakes import FakeChannel


class ClosingChannel(FakeChannel):
    """Closed by its peer as soon as the peer sends anything."""

    def __init__(self) -> None:
        super().__init__()
        self.peer_answered = False
        self.was_closed = False

    def peer_closed(self) -> bool:
        with contextlib.suppress(BlockingIOError):
            self.peer_answered = bool(self._ours.recv(1)) or self.peer_answered
        return self.peer_answered

    def close(self) -> None:
        self.was_closed = True
        super().close()


@pytest.fixture
def channels() -> Iterator[list[ClosingChannel]]:
    made = [ClosingChannel() for _ in range(20)]
    yield made
    for channel in made:
        channel.release()


def test_all_channels_start_closing_before_any_is_awaited(channels: list[ClosingChannel]) -> None:
    def close_all() -> None:
        while not all(channel.close_starts for channel in channels):
            time.sleep(0.001)
        for channel in reversed(channels):
            channel.notify()

    system = threading.Thread(target=close_all)
    system.start()
    close_gracefully(channels, timeout_s=30)
    system.join()
    assert all(channel.peer_answered and channel.was_closed for channel in channels)


def test_a_peer_that_never_closes_is_abandoned_after_the_timeout(channels: list[ClosingChannel]) -> None:
    channels[3].notify()
    close_gracefully(channels, timeout_s=0.05)
    assert all(channel.was_closed for channel in channels)
    assert [channel.peer_answered for channel in channels].count(True) == 1


class FullSocket(ClosingChannel):
    """Has no room for its close frame until the peer reads; the peer answers when it has read the frame."""

    def __init__(self) -> None:
        super().__init__()
        with contextlib.suppress(BlockingIOError):
            while True:
                self._ours.send(bytes(65_536))
        self._written = False

    def flush(self) -> bool:
        with contextlib.suppress(BlockingIOError):
            self._written = self._written or self._ours.send(b"bye") == 3
        return self._written

    def answer_close(self) -> None:
        self._theirs.settimeout(10)
        with contextlib.suppress(TimeoutError):
            while not self._theirs.recv(1 << 20).endswith(b"bye"):
                pass
            self.notify()


def test_a_close_frame_that_meets_a_full_socket_is_sent_when_there_is_room() -> None:
    channel = FullSocket()
    system = threading.Timer(0.1, channel.answer_close)
    system.start()
    close_gracefully([channel], timeout_s=8)
    assert channel.peer_answered
    system.join()
