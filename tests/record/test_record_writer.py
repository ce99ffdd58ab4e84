"""Are the rows read those that were written, however parts were split, and whatever happened to the writer?"""

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from crescendo.model.errors import LostError
from crescendo.record.manifest import Manifest, State, sha256_of, write_manifest
from crescendo.record.reader import journalled_parts, open_recording
from crescendo.record.schema import EVENTS, OWN_DELAY, READ_DELAY, RECEIVED, SENT, SETTLED
from crescendo.record.writer import Recorder

SECOND_NS = 10**9


def begin(run_dir: Path) -> None:
    write_manifest(run_dir, Manifest(run="r", tag=1, experiment={}, command=[], started_ns=0))


def sent(recorder: Recorder, first: int, count: int) -> None:
    numbers = np.arange(first, first + count, dtype=np.int64)
    recorder.append(SENT, count, 3, numbers, 1, numbers * 1000, numbers * 1000 + 7, 256)


def rows_of(run_dir: Path, table: str, order: str) -> list[tuple[Any, ...]]:
    """Read with DuckDB, which is independent of our writer and reader."""
    pattern = str(run_dir / table / "*.parquet")
    return duckdb.sql(f"SELECT * FROM read_parquet('{pattern}') ORDER BY {order}").fetchall()  # noqa: S608


@given(
    batches=st.lists(st.integers(0, 120), max_size=12),
    block_rows=st.integers(1, 50),
    part_rows=st.integers(1, 130),
    ticks=st.lists(st.integers(0, 11), max_size=3),
)
@settings(deadline=None, max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_rows_written_are_rows_read(
    tmp_path_factory: pytest.TempPathFactory, batches: list[int], block_rows: int, part_rows: int, ticks: list[int]
) -> None:
    run_dir = tmp_path_factory.mktemp("run")
    begin(run_dir)
    recorder = Recorder(run_dir, "peer", part_rows=part_rows, block_rows=block_rows, part_ns=1)
    expected = []
    seq = now_ns = 0
    for index, count in enumerate(batches):
        sent(recorder, seq, count)
        expected += [(3, n, 1, n * 1000, n * 1000 + 7, 256) for n in range(seq, seq + count)]
        seq += count
        if index in ticks:
            now_ns += SECOND_NS
            recorder.tick(now_ns)
    recorder.close()
    assert (rows_of(run_dir, SENT, "seq") if seq else []) == expected
    recording = open_recording(run_dir)
    assert recording.rows(SENT) == len(expected)
    assert recording.damaged == {}
    assert all(part.rows <= part_rows for part in recording.parts)
    assert all(pq.read_metadata(file).num_rows > 0 for file in recording.files(SENT))


def test_every_table_keeps_every_value(tmp_path: Path) -> None:
    begin(tmp_path)
    recorder = Recorder(tmp_path, "peer", block_rows=4)
    low, high = -(2**63), 2**63 - 1
    times_ns = np.array([low, -1, 0, 1, high], np.int64)
    recorder.append(RECEIVED, 5, 32_767, -1, times_ns, times_ns, times_ns, times_ns, times_ns, 2**31 - 1, 15)
    recorder.append(SETTLED, 1, 7, 0, 99, 5, 6, 1)
    for number in range(6):
        recorder.append(EVENTS, 1, number, "sender-é", "disconnect", '{"reason": "💥"}')
    recorder.close()
    assert rows_of(tmp_path, RECEIVED, "seq") == [
        (32_767, -1, n, n, n, n, n, 2**31 - 1, 15) for n in times_ns.tolist()
    ]  # fmt: skip
    assert rows_of(tmp_path, SETTLED, "first_seq") == [(7, 0, 99, 5, 6, 1)]
    assert rows_of(tmp_path, EVENTS, "t_ns") == [(n, "sender-é", "disconnect", '{"reason": "💥"}') for n in range(6)]


def test_values_are_copied_by_append(tmp_path: Path) -> None:
    begin(tmp_path)
    recorder = Recorder(tmp_path, "peer")
    numbers = np.arange(10, dtype=np.int64)
    recorder.append(SENT, 10, 1, numbers, 1, numbers, numbers, 32)
    numbers[:] = -1
    recorder.close()
    assert [row[1] for row in rows_of(tmp_path, SENT, "seq")] == list(range(10))


def test_parts_are_closed_by_row_count(tmp_path: Path) -> None:
    begin(tmp_path)
    recorder = Recorder(tmp_path, "peer", part_rows=1000, block_rows=100)
    for first in range(0, 3500, 70):
        sent(recorder, first, 70)
    recorder.close()
    parts = list(journalled_parts(tmp_path))
    assert [part.rows for part in parts] == [1000, 1000, 1000, 500]
    assert [part.path for part in parts] == [f"sent/peer-0000{n}.parquet" for n in range(4)]
    assert [pq.read_metadata(tmp_path / part.path).num_rows for part in parts] == [part.rows for part in parts]


def test_parts_are_closed_within_ten_seconds(tmp_path: Path) -> None:
    begin(tmp_path)
    recorder = Recorder(tmp_path, "peer")
    for second in range(30):
        sent(recorder, second, 1)
        recorder.append(RECEIVED, 1, 1, 1, second, 0, 0, 0, 0, 32, 0)
        recorder.tick((100 + second) * SECOND_NS)
    recorder.close()
    for table in (SENT, RECEIVED):
        rows = [part.rows for part in journalled_parts(tmp_path) if part.table == table]
        assert sum(rows) == 30
        assert max(rows) <= 10
        assert len(rows) <= 5


def test_a_finished_part_is_readable_while_the_run_is_in_progress(tmp_path: Path) -> None:
    begin(tmp_path)
    recorder = Recorder(tmp_path, "peer", part_rows=100, block_rows=50)
    sent(recorder, 0, 260)
    deadline_s = time.monotonic() + 5
    while len(list(journalled_parts(tmp_path))) < 2 and time.monotonic() < deadline_s:
        time.sleep(0.005)
    growing = open_recording(tmp_path)
    assert growing.manifest.state is State.INCOMPLETE
    assert growing.rows(SENT) == 200
    assert [row[1] for row in rows_of(tmp_path, SENT, "seq")] == list(range(200))
    recorder.close()
    assert open_recording(tmp_path).rows(SENT) == 260


def test_a_temporary_file_is_never_mistaken_for_a_part(tmp_path: Path) -> None:
    begin(tmp_path)
    seen: set[str] = set()
    torn: list[str] = []
    stop = threading.Event()

    def watch() -> None:
        while not stop.is_set():
            for file in set((tmp_path / SENT).glob("*.parquet")):
                if file.name not in seen:
                    seen.add(file.name)
                    try:
                        pq.read_metadata(file)
                    except (OSError, ValueError) as err:
                        torn.append(f"{file.name}: {err}")

    watcher = threading.Thread(target=watch)
    watcher.start()
    recorder = Recorder(tmp_path, "peer", part_rows=500, block_rows=250)
    for first in range(0, 20_000, 250):
        sent(recorder, first, 250)
    recorder.close()
    time.sleep(0.02)
    stop.set()
    watcher.join()
    assert torn == []
    assert len(seen) == 40
    assert list(tmp_path.rglob("*.tmp")) == []


def test_every_part_in_the_journal_matches_its_hash(tmp_path: Path) -> None:
    begin(tmp_path)
    recorder = Recorder(tmp_path, "peer", part_rows=100, block_rows=50)
    sent(recorder, 0, 250)
    recorder.close()
    for part in journalled_parts(tmp_path):
        file = tmp_path / part.path
        assert (file.stat().st_size, sha256_of(file)) == (part.octets, part.sha256)


def test_twelve_bytes_per_message_are_enough(tmp_path: Path) -> None:
    """100,000 messages of one sender at 20,000 per second, in batches of 6 with jitter: sent, settled and received.

    Its window is small, so each message was held back by another time, and the receiver reads every batch late.
    """
    begin(tmp_path)
    recorder = Recorder(tmp_path, "peer")
    dice = np.random.default_rng(1)
    seq, start_ns, total = 0, 5_000_000_000_000, 100_000
    while seq < total:
        count = min(int(dice.integers(1, 12)), total - seq)
        numbers = np.arange(seq, seq + count, dtype=np.int64)
        intended_ns = start_ns + numbers * 50_000
        sent_ns = int(intended_ns[-1]) + int(dice.integers(50_000, 500_000))
        received_ns = sent_ns + int(dice.integers(80_000, 900_000))
        recorder.append(SENT, count, 1, numbers, 1, intended_ns, sent_ns, 256)
        recorder.append(RECEIVED, count, 1, 1, numbers, intended_ns, sent_ns, received_ns, numbers, 256, 0)
        recorder.append(SETTLED, 1, 1, seq, seq + count - 1, sent_ns, received_ns + 40_000, 1)
        recorder.append(OWN_DELAY, count, 1, numbers, numbers, dice.integers(20_000, 500_000, count))
        recorder.append(READ_DELAY, 1, 1, seq, seq + count - 1, int(dice.integers(100_000, 800_000)))
        seq += count
    recorder.close()
    octets = {name: 0 for name in (SENT, RECEIVED, SETTLED, OWN_DELAY, READ_DELAY)}
    for file in tmp_path.rglob("*.parquet"):
        octets[file.parent.name] += file.stat().st_size
    assert min(octets.values()) > 0
    assert sum(octets.values()) / total <= 12, octets


def tick_for(recorder: Recorder, seconds: float) -> None:
    deadline_s = time.monotonic() + seconds
    while time.monotonic() < deadline_s:
        recorder.tick(0)
        time.sleep(0.001)


# -- failures --------------------------------------------------------------------------------------------------------

CHILD = """
import sys, resource, numpy as np
from pathlib import Path
from crescendo.model.errors import LostError
from crescendo.record.schema import SENT
from crescendo.record.writer import Recorder

def append(recorder, first, count):
    numbers = np.arange(first, first + count, dtype=np.int64)
    noise = np.random.default_rng(first).integers(0, 2**62, count)
    recorder.append(SENT, count, 3, numbers, 1, noise, noise, 256)

run_dir = Path(sys.argv[1])
"""


def child(body: str, run_dir: Path, **options: Any) -> "subprocess.Popen[str]":
    code = CHILD + textwrap.dedent(body)
    return subprocess.Popen([sys.executable, "-c", code, str(run_dir)], stdout=subprocess.PIPE, text=True, **options)


@pytest.mark.parametrize("delay_s", [0.0, 0.05, 0.15])
def test_kill_9_loses_at_most_the_open_part(tmp_path: Path, delay_s: float) -> None:
    begin(tmp_path)
    writer = child(
        """
        recorder = Recorder(run_dir, "peer", part_rows=20_000, block_rows=5_000)
        first = 0
        while True:
            append(recorder, first, 5_000)
            first += 5_000
            print(first, flush=True)
        """,
        tmp_path,
    )
    assert writer.stdout is not None
    try:
        deadline_s = time.monotonic() + 20
        while len(list(journalled_parts(tmp_path))) < 3 and time.monotonic() < deadline_s:
            writer.stdout.readline()
        time.sleep(delay_s)
        os.kill(writer.pid, signal.SIGKILL)
    finally:
        writer.kill()
        writer.communicate()
    recording = open_recording(tmp_path)
    assert recording.manifest.state is State.INCOMPLETE
    assert recording.damaged == {}
    assert len(recording.parts) >= 3
    numbers = [n for file in recording.files(SENT) for n in pq.read_table(file, columns=["seq"])["seq"].to_pylist()]
    assert sorted(numbers) == list(range(len(numbers)))
    assert len(numbers) == recording.rows(SENT)
    # A part that is renamed but not yet in the journal does not count; there is at most one.
    announced = {str(tmp_path / part.path) for part in recording.parts}
    assert len({str(file) for file in tmp_path.rglob("*.parquet")} - announced) <= 1


def test_a_full_disk_is_a_lost_recording_not_a_silent_one(tmp_path: Path) -> None:
    begin(tmp_path)
    writer = child(
        """
        import signal
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, 300_000))
        recorder = Recorder(run_dir, "small", part_rows=10_000, block_rows=1_000)
        append(recorder, 0, 20_000)
        recorder.close()
        recorder = Recorder(run_dir, "large", block_rows=1_000)
        try:
            for first in range(0, 2_000_000, 1_000):
                append(recorder, first, 1_000)
                recorder.tick(0)
        except LostError as err:
            print("LOST", err)
        try:
            recorder.close()
        except LostError as err:
            print("LOST AGAIN", err)
        import threading
        print([thread.name for thread in threading.enumerate()])
        """,
        tmp_path,
        stderr=subprocess.PIPE,
    )
    out, errors = writer.communicate(timeout=60)
    lines = out.splitlines()
    assert writer.returncode == 0
    assert errors == ""
    assert lines[0].startswith("LOST ")
    assert "cannot be written" in lines[0]
    assert lines[1].startswith("LOST AGAIN")
    assert lines[2] == "['MainThread']"
    recording = open_recording(tmp_path)
    assert recording.rows(SENT) == 20_000
    assert recording.damaged == {}


def test_a_run_directory_that_is_a_file_fails_at_once(tmp_path: Path) -> None:
    place = tmp_path / "run"
    place.write_text("not a directory")
    with pytest.raises(LostError, match="cannot be written"):
        Recorder(place, "peer")


def test_a_table_that_cannot_be_created_fails_at_the_next_call(tmp_path: Path) -> None:
    begin(tmp_path)
    (tmp_path / SENT).write_text("in the way")
    recorder = Recorder(tmp_path, "peer", block_rows=10, part_rows=10)
    sent(recorder, 0, 11)
    with pytest.raises(LostError, match="cannot be written"):
        tick_for(recorder, 5.0)
    with pytest.raises(LostError):
        recorder.close()
    assert "recorder" not in {thread.name for thread in threading.enumerate()}
