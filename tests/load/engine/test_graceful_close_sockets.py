"""Do connections end only when the system has heard our last words, or will not?"""

import contextlib
import threading
import time
from collections.abc import Iterator

import pytest

from crescendo.load.engine.graceful_close import close_gracefully
from load_fakes import FakeChannel


class Leaving(FakeChannel):
    """Gone when the other side says anything after the good-bye."""

    def __init__(self) -> None:
        super().__init__()
        self.heard = False
        self.let_go = False

    def peer_closed(self) -> bool:
        with contextlib.suppress(BlockingIOError):
            self.heard = bool(self._ours.recv(1)) or self.heard
        return self.heard

    def close(self) -> None:
        self.let_go = True
        super().close()


@pytest.fixture
def channels() -> Iterator[list[Leaving]]:
    made = [Leaving() for _ in range(20)]
    yield made
    for channel in made:
        channel.release()


def test_all_say_good_bye_before_anybody_waits(channels: list[Leaving]) -> None:
    def hang_up() -> None:
        while not all(channel.good_byes for channel in channels):
            time.sleep(0.001)
        for channel in reversed(channels):
            channel.poke()

    system = threading.Thread(target=hang_up)
    system.start()
    close_gracefully(channels, timeout_s=30)
    system.join()
    assert all(channel.heard and channel.let_go for channel in channels)


def test_who_never_hangs_up_is_left_in_the_end(channels: list[Leaving]) -> None:
    channels[3].poke()
    close_gracefully(channels, timeout_s=0.05)
    assert all(channel.let_go for channel in channels)
    assert [channel.heard for channel in channels].count(True) == 1


class FullSocket(Leaving):
    """Has no room for its good-bye until the other side reads, which hangs up when it has heard it."""

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

    def hear(self) -> None:
        self._theirs.settimeout(10)
        with contextlib.suppress(TimeoutError):
            while not self._theirs.recv(1 << 20).endswith(b"bye"):
                pass
            self.poke()


def test_a_good_bye_that_finds_the_socket_full_is_said_when_there_is_room() -> None:
    channel = FullSocket()
    system = threading.Timer(0.1, channel.hear)
    system.start()
    close_gracefully([channel], timeout_s=8)
    assert channel.heard
    system.join()
