"""Does a slow generator own its delay, whatever its window, its rate, its recorder and its neighbours are?"""

import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from crescendo.load.assignment import Quota
from crescendo.load.engine.sender import Sender
from crescendo.load.engine.sender_engine import SenderEngine
from crescendo.load.protocols.interfaces import SettledMessages
from crescendo.model.pacer import UNLIMITED, pacer_for
from crescendo.model.workload import Group, Settle, WindowMode
from crescendo.net.arrival_time import oldest_unread_ns, stamp_arrivals
from crescendo.net.sockets import listen
from crescendo.record import writer
from crescendo.record.schema import OWN_DELAY, SENT
from crescendo.record.writer import PartFile, Recorder
from crescendo.wire.stamp import Stamps
from load_fakes import FakeControl, FakeLog, FakeSendChannel

MS = 1_000_000
BATCH = 50
SLOW_S = 0.004


class SettlingChannel(FakeSendChannel):
    """Settles every message at once, over TCP, so that the kernel knows when the settlement arrived."""

    def __init__(self, capacity: int = BATCH) -> None:
        super().__init__(capacity)
        self.release()
        with listen() as listener:
            self._theirs = socket.create_connection(listener.getsockname())
            self._ours = listener.accept()[0]
        self._ours.setblocking(False)
        stamp_arrivals(self._ours)
        self.prepares = False
        self.taken_ns: list[int] = []

    def take(self, stamps: Stamps) -> bool:
        first = len(self.taken)
        super().take(stamps)
        self.taken_ns += [time.monotonic_ns()] * len(stamps)
        self.outcomes.append(SettledMessages(range(first, first + len(stamps)), 1))
        self.notify()
        return True

    def oldest_unread_ns(self) -> int | None:
        return oldest_unread_ns(self._ours)


class SlowLog(FakeLog):
    """A generator that needs long for every batch."""

    def append(self, table: str, rows: int, *columns: Any) -> None:
        if table == SENT:
            time.sleep(SLOW_S)
        super().append(table, rows, *columns)


@pytest.fixture
def engines() -> Iterator[list[SenderEngine]]:
    made: list[SenderEngine] = []
    yield made
    for engine in made:
        engine.close()


def _sender(rate: float, total: int, window: int, number: int = 1) -> Sender:
    group = Group(rate=rate, settle=Settle.AT_LEAST_ONCE, mode=WindowMode(window))
    return Sender(number, group, pacer_for(rate), Quota(total, UNLIMITED), SettlingChannel(), tag=7)


def _own_ns(log: FakeLog, number: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Own delay and whole delay of each message."""
    rows = [row for row in log.rows[SENT] if row[0] == number]
    late = {seq: sent_ns - intended_ns for _, seq, _, intended_ns, sent_ns, _ in rows}
    own = dict(late)
    for _, first, last, own_ns in (row for row in log.rows.get(OWN_DELAY, []) if row[0] == number):
        own |= dict.fromkeys(range(first, last + 1), own_ns)
    return np.array(list(own.values())), np.array(list(late.values()))


@pytest.mark.parametrize("window", [BATCH - 1, BATCH])
def test_a_slow_generator_with_a_schedule_is_late_by_itself(engines: list[SenderEngine], window: int) -> None:
    log = SlowLog()
    engines.append(SenderEngine([_sender(20_000, 1500, window)], log, FakeControl(), drain_ns=500 * MS))
    statistics = engines[0].run(time.monotonic_ns())
    own_ns, late_ns = _own_ns(log)
    assert late_ns.max() > 40 * MS  # 30 batches of 4 ms each, due within 75 ms
    assert (own_ns >= 0.9 * late_ns - MS).all(), "the window was never what it waited for"
    assert statistics.values.blocked_share < 0.05
    assert statistics.values.own_delay_max_ns >= 0.9 * late_ns.max()


@pytest.mark.parametrize("window", [BATCH - 1, BATCH])
def test_a_slow_generator_without_a_schedule_says_so(engines: list[SenderEngine], window: int) -> None:
    log = SlowLog()
    engines.append(SenderEngine([_sender(0, 1500, window)], log, FakeControl(), drain_ns=500 * MS))
    statistics = engines[0].run(time.monotonic_ns())
    sent_ns = [row[4] for row in log.rows[SENT]]
    own_ns = sum(row[3] for row in log.rows[OWN_DELAY])
    assert own_ns == pytest.approx(sent_ns[-1] - sent_ns[0], rel=0.1)
    assert statistics.values.blocked_share < 0.05


def test_a_group_with_a_schedule_is_judged_beside_one_without(engines: list[SenderEngine]) -> None:
    log = SlowLog()
    senders = [_sender(5000, 400, BATCH, number=1), _sender(0, 1000, BATCH, number=2)]
    engines.append(SenderEngine(senders, log, FakeControl(), drain_ns=500 * MS))
    statistics = engines[0].run(time.monotonic_ns())
    own_ns, late_ns = _own_ns(log, number=1)
    assert late_ns.max() > 4 * MS
    assert (own_ns >= 0.9 * late_ns - MS).all()
    assert statistics.values.own_delay_max_ns >= 0.9 * late_ns.max()
    assert sum(row[3] for row in log.rows[OWN_DELAY] if row[0] == 2) > 30 * MS


def test_a_recorder_that_waits_for_its_disk_delays_us_not_the_system(
    engines: list[SenderEngine], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next messages are sent late, and say so. None has a send time before it was really sent."""
    write = PartFile.write

    def write_slowly(part: PartFile, block: Any) -> None:
        time.sleep(0.06)
        write(part, block)

    monkeypatch.setattr(PartFile, "write", write_slowly)
    monkeypatch.setattr(writer, "_QUEUED_BLOCKS", 2)
    recorder = Recorder(tmp_path, "sender-0", block_rows=100)
    sender, control = _sender(5000, 3000, window=3000), FakeControl()  # long enough for the queue to fill
    engines.append(SenderEngine([sender], recorder, control, drain_ns=500 * MS))
    statistics = engines[0].run(time.monotonic_ns())
    recorder.close()
    sent = pq.read_table(tmp_path / SENT)
    late_ns = sent["sent_ns"].to_numpy() - sent["intended_ns"].to_numpy()
    assert late_ns.max() > 80 * MS
    own_ns = late_ns.copy()
    for row in pq.read_table(tmp_path / OWN_DELAY).to_pylist() if (tmp_path / OWN_DELAY).exists() else ():
        own_ns[row["first_seq"] : row["last_seq"] + 1] = row["own_ns"]
    assert (own_ns >= late_ns).all(), "all of the delay is our own"
    assert statistics.values.own_delay_max_ns >= late_ns.max()
    channel = sender.channel
    assert isinstance(channel, SettlingChannel)
    early = np.array(channel.taken_ns) - sent["sent_ns"].to_numpy() > 30 * MS
    assert np.count_nonzero(early) < len(early) // 10
    assert max(int(str(stall["duration_ns"])) for stall in control.stalls) > 40 * MS


@pytest.mark.parametrize("prepares", [True, False])
def test_a_write_that_is_interrupted_is_our_delay(engines: list[SenderEngine], prepares: bool) -> None:
    """Its messages carry a send time from before the interruption."""

    class Interrupted(FakeSendChannel):
        def take(self, stamps: Stamps) -> bool:
            if 100 in stamps["seq"]:
                time.sleep(0.05)
            return super().take(stamps)

    channel, log = Interrupted(), FakeLog()
    channel.prepares = prepares
    group = Group(rate=1000, settle=Settle.AT_MOST_ONCE)
    sender = Sender(1, group, pacer_for(1000), Quota(160, UNLIMITED), channel, tag=7)
    engines.append(SenderEngine([sender], log, FakeControl(), drain_ns=MS))
    statistics = engines[0].run(time.monotonic_ns() + 20 * MS)
    own_ns, late_ns = _own_ns(log)
    assert bool(channel.written) == prepares
    assert own_ns[100] >= late_ns[100] + 50 * MS
    assert own_ns[101] >= 48 * MS  # sent late, after the interruption
    assert statistics.values.own_delay_max_ns >= own_ns[100]
