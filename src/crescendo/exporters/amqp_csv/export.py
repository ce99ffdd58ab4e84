"""How is a recording exported in the CSV format of the federation study?

One file per group, for groups whose receivers answer every message (echo, ping-pong): one line per acknowledged message
of the measure phase, in the order of the acknowledgements, then the end message, runtime, throughput and bandwidth. A
message without an acknowledgement has no line, as there. Computes nothing that those lines do not say.
"""

import re
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow.parquet as pq

from crescendo.exporters.export_window import ExportWindow, window_of
from crescendo.exporters.exported_recording import files_below, intact_recording
from crescendo.model.errors import ConfigError
from crescendo.model.workload import Group, PingPongMode
from crescendo.record.manifest import PeerRecord
from crescendo.record.new_directory import new_directory
from crescendo.record.reader import Recording
from crescendo.record.recorded_experiment import experiment_of
from crescendo.record.schema import RECEIVED, SPANS, Flag

HEADER = "Message ID,Producer ID,Consumer ID,Result,Sent time,Ack Sent Time,Ack Recv Time,"
ROUND_TRIP, ONE_WAY = "round trip", "one way"
_IN_ORDER, _OUT_OF_ORDER, _END = 1, -1, -1
_US_PER_MS, _BYTES_PER_MB = 1000, 1_000_000

_DELIVERY = ["flags", "intended_ns", "receiver", "sender", "seq", "sent_ns", "size"]
_ANSWER = ["action", "source", "t_ns", "value"]

Int64s = npt.NDArray[np.int64]
_Key = tuple[int, int]


def export_amqp_csv(run_dir: Path, out: Path) -> list[Path]:
    """Export a run; returns the files. Raises ConfigError if `out` is not empty, or nothing was answered."""
    recording = intact_recording(run_dir)
    groups = [group for group in experiment_of(recording.manifest).workload if group.is_answered]
    if not groups:
        raise ConfigError(
            f"{run_dir}: this format has the time of every acknowledgement, and no group was answered; "
            "run it with mode: {kind: echo} (bandwidth) or {kind: ping-pong} (latency)"
        )
    with new_directory(out) as draft:
        for group in groups:
            _write(draft, recording, group)
    return files_below(out)


class _Acknowledged(NamedTuple):
    """The acknowledged messages of one group, in the order of the acknowledgements. Times are on the wall clock."""

    seq: Int64s
    sender: Int64s
    receiver: Int64s
    result: Int64s
    size: Int64s
    sent_us: Int64s
    answered_us: Int64s
    acked_us: Int64s


def _write(folder: Path, recording: Recording, group: Group) -> None:
    rows = _acknowledged(recording, group)
    started_us, ended_us = int(rows.sent_us.min()), int(rows.acked_us.max())
    seconds = max(ended_us - started_us, 1) / 1e6
    messages = rows.seq.size
    test = "latency" if isinstance(group.mode, PingPongMode) else "bandwidth"
    stamp = datetime.fromtimestamp(started_us / 1e6, UTC).strftime("%Y-%m-%d_%H.%M.%S")
    name = f"{_word(recording.manifest.run)}_{_word(group.name)}_{test}_{messages}_{int(rows.size.max())}_{stamp}.csv"
    with (folder / name).open("w", encoding="ascii", newline="\n") as file:
        file.write(f"{HEADER}\n")
        numbers = zip(rows.seq + 1, rows.sender, rows.receiver, rows.result, strict=True)  # there, the first is 1
        times = zip(*(each // _US_PER_MS for each in (rows.sent_us, rows.answered_us, rows.acked_us)), strict=True)
        for counted, timed in zip(numbers, times, strict=True):
            file.write(",".join(str(value) for value in (*counted, *timed)) + ",\n")
        end_ms = ended_us // _US_PER_MS
        file.write(f"{_END},{rows.sender[-1]},{rows.receiver[-1]},{_IN_ORDER},0,{end_ms},{end_ms},\n\n")
        file.write(f"runtime,{seconds:.6f},sec\n")
        if test == "bandwidth":
            file.write(f"throughput,{messages / seconds:.3f},msgs/sec\n")
            file.write(f"bandwidth,{rows.size.sum() / seconds / _BYTES_PER_MB:.6f},MB/sec\n")


def _acknowledged(recording: Recording, group: Group) -> _Acknowledged:
    connections = recording.manifest.connections
    senders = {each.id for each in connections if each.role == "sender" and each.group == group.name}
    # By sender and number; of several deliveries and answers the first counts.
    arrived, answered, acked = _arrived(recording, senders), *_answers(recording, senders)
    keys = sorted(arrived.keys() & answered.keys() & acked.keys(), key=lambda key: acked[key])
    if not keys:
        raise ConfigError(f"{recording.path}: no message of group {group.name} was acknowledged in the measure phase")
    rows = [(seq, sender, *arrived[sender, seq], answered[sender, seq], acked[sender, seq]) for sender, seq in keys]
    return _Acknowledged(*np.array(rows, np.int64).T)


def _arrived(recording: Recording, senders: set[int]) -> dict[_Key, tuple[int, int, int, int]]:
    """Of every message of the measure phase: receiver, result, size, and when it was sent."""
    found: dict[_Key, tuple[int, int, int, int]] = {}
    for peer, file in _parts(recording, RECEIVED):
        window = window_of(recording, peer)
        for batch in pq.ParquetFile(file).iter_batches(columns=_DELIVERY):
            flags, intended_ns, receiver, sender, seq, sent_ns, size = (column.to_numpy() for column in batch.columns)
            wanted = np.isin(sender, list(senders)) & ((flags & int(Flag.CORRUPT | Flag.STRAY)) == 0)
            wanted &= (intended_ns >= window.start_ns) & (intended_ns < window.end_ns)
            result = np.where((flags & int(Flag.OUT_OF_ORDER)) != 0, _OUT_OF_ORDER, _IN_ORDER)
            columns = (sender, seq, receiver, result, size, _us(sent_ns, window))
            for one, number, *rest in zip(*(column[wanted].tolist() for column in columns), strict=True):
                found.setdefault((one, number), tuple(rest))
    return found


def _answers(recording: Recording, senders: set[int]) -> tuple[dict[_Key, int], dict[_Key, int]]:
    """When the answer to each message was sent, and when it was received."""
    wanted = {f"sender/{number}": number for number in senders}
    found: dict[str, dict[_Key, int]] = {ONE_WAY: {}, ROUND_TRIP: {}}
    for peer, file in _parts(recording, SPANS):
        window = window_of(recording, peer)
        for batch in pq.ParquetFile(file).iter_batches(columns=_ANSWER):
            action, source, t_ns, seq = (column.to_pylist() for column in batch.columns)
            times_us = _us(np.array(t_ns, np.int64), window).tolist()
            for kind, name, number, time_us in zip(action, source, seq, times_us, strict=True):
                if kind in found and name in wanted:
                    found[kind].setdefault((wanted[name], int(number)), time_us)
    return found[ONE_WAY], found[ROUND_TRIP]


def _parts(recording: Recording, table: str) -> Iterable[tuple[PeerRecord, str]]:
    peers = {peer.id: peer for peer in recording.manifest.peers}
    for part in recording.parts:
        if part.table == table and part.peer in peers:
            yield peers[part.peer], str(recording.path / part.path)


def _us(t_ns: Int64s, window: ExportWindow) -> Int64s:
    return (t_ns + window.realtime_offset_ns) // 1000


def _word(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9.-]", "-", text)[:80]
