"""How late is a message said to have been read, given what the loop and the kernel know?"""

import time

import pytest

from crescendo.load.engine.loop_clock import LoopClock
from crescendo.load.engine.read_delay import PIECE_BYTES, ReadDelay
from crescendo.load.engine.stalls import StallLog
from crescendo.record.schema import READ_DELAY, READ_DELAY_FLOOR_NS
from load_fakes import FakeLog, FakeReceiveChannel

MS = 1_000_000


class KernelChannel(FakeReceiveChannel):
    """A channel that has nothing to read."""

    def __init__(self) -> None:
        super().__init__([])
        self.release()


def read(
    waited_ms: float,
    meant_ms: float,
    *,
    newest_ms: float | None,
    messages: int = 1,
    free_ms: float | None = None,
    woken_ms: float = 0,
) -> tuple[int | None, KernelChannel, ReadDelay]:
    """Read after a wait that ended just now, or `woken_ms` ago; times are this long ago. Returns the recorded delay."""
    now_ns = time.monotonic_ns()

    def ago(ms: float) -> int:
        return now_ns - int(ms * MS)

    clock = LoopClock(ago(woken_ms + waited_ms + 1), StallLog(lambda _kind, _detail: None))
    clock.woken(ago(woken_ms + waited_ms), int(meant_ms * MS), ago(woken_ms), found=True)
    channel = KernelChannel()
    delay, log = ReadDelay(4), FakeLog()
    delay.free_ns = 0 if free_ms is None else ago(free_ms)
    delay.before_read(channel, clock)
    assert channel.stamps_reads
    channel.read_ns, channel.arrived_ns = now_ns, None if newest_ms is None else ago(newest_ms)
    delay.after_read(channel, clock, range(10, 10 + messages), log)
    rows = log.rows.get(READ_DELAY, [])
    assert [row[:3] for row in rows] in ([], [(4, 10, 9 + messages)])
    assert delay.max_ns == (rows[0][3] if rows else 0)
    return (rows[0][3] if rows else None), channel, delay


@pytest.mark.parametrize("messages", [1, 30])
def test_the_kernel_knows_how_long_a_message_was_there(messages: int) -> None:
    late_ns, channel, _ = read(waited_ms=4, meant_ms=5, newest_ms=2, messages=messages)
    assert (late_ns, channel.stamps_reads) == (2 * MS, False)


def test_a_process_that_was_stopped_between_its_wait_and_its_read_was_late() -> None:
    """The newest message has just arrived, the first one ended the wait long ago."""
    assert read(waited_ms=4, meant_ms=5, newest_ms=0.2, messages=30, woken_ms=500)[0] == 500 * MS
    assert read(waited_ms=4, meant_ms=5, newest_ms=0.2, messages=1, woken_ms=500)[0] == pytest.approx(0.2 * MS)


def test_a_message_that_was_read_at_once_has_no_row() -> None:
    assert read(waited_ms=4, meant_ms=5, newest_ms=READ_DELAY_FLOOR_NS / MS / 2)[0] is None


def test_without_the_kernel_the_doubt_is_ours() -> None:
    assert read(waited_ms=4, meant_ms=5, newest_ms=None)[0] == 4 * MS


def test_after_a_stall_one_message_is_known_and_several_count_from_the_last_look() -> None:
    """The kernel tells about the last one."""
    assert read(waited_ms=500, meant_ms=5, newest_ms=20, messages=1)[0] == 20 * MS
    assert read(waited_ms=500, meant_ms=5, newest_ms=20, messages=9)[0] == 500 * MS


def test_after_a_stalled_pass_several_messages_count_from_the_look_before_it() -> None:
    """Stopped while it did something else: what it finds at once has accumulated, and the kernel knows the last one."""
    now_ns = time.monotonic_ns()
    clock = LoopClock(now_ns - 500 * MS, StallLog(lambda _kind, _detail: None))
    clock.woken(now_ns, clock.wait_ns(now_ns, 50 * MS), now_ns + 3 * MS, found=True)
    channel, delay, log = KernelChannel(), ReadDelay(4), FakeLog()
    delay.before_read(channel, clock)
    assert channel.read_limit == PIECE_BYTES
    channel.read_ns, channel.arrived_ns = now_ns + 3 * MS, now_ns - MS
    delay.after_read(channel, clock, range(9), log)
    assert log.rows[READ_DELAY] == [(4, 0, 8, 503 * MS)]


def test_what_accumulated_during_a_stall_is_read_in_pieces() -> None:
    _, channel, delay = read(waited_ms=500, meant_ms=5, newest_ms=400, messages=9)
    assert channel.read_limit is None  # everything was read
    clock = LoopClock(time.monotonic_ns() - 600 * MS, StallLog(lambda _kind, _detail: None))
    clock.woken(time.monotonic_ns() - 500 * MS, 5 * MS, time.monotonic_ns(), found=True)
    delay.before_read(channel, clock)
    assert channel.read_limit == PIECE_BYTES
    channel.drained, channel.arrived_ns = False, time.monotonic_ns() - 300 * MS
    delay.after_read(channel, clock, range(19, 30), FakeLog())
    assert channel.read_limit == PIECE_BYTES
    # The next piece arrived after the end of the last one, although the loop has looked since.
    end_ns, log = channel.arrived_ns, FakeLog()
    clock.woken(time.monotonic_ns(), 5 * MS, time.monotonic_ns(), found=True)
    delay.before_read(channel, clock)
    channel.drained, channel.read_ns = True, time.monotonic_ns()
    delay.after_read(channel, clock, range(30, 40), log)
    assert log.rows[READ_DELAY] == [(4, 30, 39, channel.read_ns - end_ns)]
    assert channel.read_limit is None


def test_what_arrived_after_a_stall_is_not_read_in_pieces() -> None:
    """A receiver that always finds something would otherwise read little at a time forever."""
    delay, channel = ReadDelay(4), KernelChannel()
    now_ns = time.monotonic_ns()
    clock = LoopClock(now_ns - 600 * MS, StallLog(lambda _kind, _detail: None))
    clock.woken(now_ns - 500 * MS, 5 * MS, now_ns, found=True)
    for newest_ns, limit in ((now_ns - 1, PIECE_BYTES), (now_ns, None)):
        delay.before_read(channel, clock)
        channel.drained, channel.arrived_ns, channel.read_ns = False, newest_ns, now_ns + MS
        delay.after_read(channel, clock, range(10), FakeLog())
        clock.woken(now_ns, 5 * MS, now_ns + MS, found=True)  # the loop turns again
        assert channel.read_limit == limit


def test_a_slow_receiver_is_not_late_while_it_consumes() -> None:
    assert read(waited_ms=4, meant_ms=5, newest_ms=3, free_ms=1)[0] == MS
