"""How is a recording exported in the CSV format of the federation study?

One file per group, for groups whose receivers answer every message (echo, ping-pong): one line per acknowledged message
of the measure phase, in the order of the acknowledgements, then the end message, runtime, throughput and bandwidth. A
message without an acknowledgement has no line, as there. Computes nothing that those lines do not say.
"""

import re
import shutil
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from crescendo.exporters.export_window import ExportWindow, window_of
from crescendo.model.errors import ConfigError
from crescendo.model.workload import Group, PingPongMode
from crescendo.record.manifest import PeerRecord
from crescendo.record.reader import Recording, open_recording
from crescendo.record.recorded_experiment import experiment_of
from crescendo.record.schema import RECEIVED, SPANS, Flag

HEADER = "Message ID,Producer ID,Consumer ID,Result,Sent time,Ack Sent Time,Ack Recv Time,"
ROUND_TRIP, ONE_WAY = "round trip", "one way"
_IN_ORDER, _OUT_OF_ORDER, _END = 1, -1, -1
_US_PER_MS, _BYTES_PER_MB = 1000, 1_000_000

Int64s = npt.NDArray[np.int64]


def export_amqp_csv(run_dir: Path, out: Path) -> list[Path]:
    """Export a run; returns the files. Raises ConfigError if `out` is not empty, or nothing was answered."""
    recording = open_recording(run_dir)
    if recording.damaged:
        path, fault = next(iter(recording.damaged.items()))
        raise ConfigError(f"{run_dir}: {path} {fault}; an export would not match the run")
    groups = [group for group in experiment_of(recording.manifest).workload if group.is_answered]
    if not groups:
        raise ConfigError(
            f"{run_dir}: this format has the time of every acknowledgement, and no group was answered; "
            "run it with mode: {kind: echo} (bandwidth) or {kind: ping-pong} (latency)"
        )
    draft = out.parent / f".{out.name}.tmp"
    try:
        if out.exists() and (not out.is_dir() or any(out.iterdir())):
            raise ConfigError(f"{out}: exists and is not empty; choose another --out")
        shutil.rmtree(draft, ignore_errors=True)
        draft.mkdir(parents=True)
        for group in groups:
            _write(draft, recording, group)
        draft.rename(out)
    except OSError as err:
        raise ConfigError(f"{out}: cannot be written: {err.strerror or err}") from err
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return sorted(out.iterdir())


def _write(folder: Path, recording: Recording, group: Group) -> None:
    rows = _acknowledged(recording, group)
    started_us, ended_us, size = int(rows["sent_us"].min()), int(rows["acked_us"].max()), int(rows["size"].max())
    seconds = max(ended_us - started_us, 1) / 1e6
    messages = rows["seq"].size
    test = "latency" if isinstance(group.mode, PingPongMode) else "bandwidth"
    stamp = datetime.fromtimestamp(started_us / 1e6, UTC).strftime("%Y-%m-%d_%H.%M.%S")
    name = f"{_word(recording.manifest.run)}_{_word(group.name)}_{test}_{messages}_{size}_{stamp}.csv"
    columns = ("seq", "sender", "receiver", "result", "sent_us", "answered_us", "acked_us")
    with (folder / name).open("w", encoding="ascii", newline="\n") as file:
        file.write(f"{HEADER}\n")
        for seq, sender, receiver, result, *times_us in zip(*(rows[each].tolist() for each in columns), strict=True):
            times = ",".join(str(time_us // _US_PER_MS) for time_us in times_us)
            file.write(f"{seq + 1},{sender},{receiver},{result},{times},\n")  # there, the first message is 1
        end_ms = ended_us // _US_PER_MS
        file.write(f"{_END},{rows['sender'][-1]},{rows['receiver'][-1]},{_IN_ORDER},0,{end_ms},{end_ms},\n\n")
        file.write(f"runtime,{seconds:.6f},sec\n")
        if test == "bandwidth":
            file.write(f"throughput,{messages / seconds:.3f},msgs/sec\n")
            file.write(f"bandwidth,{rows['size'].sum() / seconds / _BYTES_PER_MB:.6f},MB/sec\n")


def _acknowledged(recording: Recording, group: Group) -> dict[str, Int64s]:
    """The acknowledged messages of the measure phase, by column, in the order of the acknowledgements."""
    senders = {each.id for each in recording.manifest.connections if each.role == "sender" and each.group == group.name}
    arrived = _arrived(recording, senders)
    acked = _answers(recording, senders)
    joined = arrived.join(acked, ["sender", "seq"], join_type="inner").sort_by([("acked_us", "ascending")])
    if not joined.num_rows:
        raise ConfigError(f"{recording.path}: no message of group {group.name} was acknowledged in the measure phase")
    return {name: joined.column(name).to_numpy() for name in joined.column_names}


def _arrived(recording: Recording, senders: set[int]) -> pa.Table:
    """The first delivery of every message, with the time of its first send on the wall clock."""
    found: list[pa.Table] = []
    columns = ["receiver", "sender", "seq", "intended_ns", "sent_ns", "size", "flags"]
    for peer, file in _parts(recording, RECEIVED):
        window = window_of(recording, peer)
        rows = pq.read_table(file, columns=columns)
        values = {name: rows.column(name).to_numpy().astype(np.int64) for name in columns}
        wanted = np.isin(values["sender"], list(senders))
        wanted &= (values["flags"] & int(Flag.CORRUPT | Flag.STRAY)) == 0
        wanted &= (values["intended_ns"] >= window.start_ns) & (values["intended_ns"] < window.end_ns)
        broke = (values["flags"] & int(Flag.OUT_OF_ORDER)) != 0
        table = {name: values[name][wanted] for name in ("receiver", "sender", "seq", "size")}
        table["sent_us"] = _us(values["sent_ns"][wanted], window)
        table["result"] = np.where(broke[wanted], _OUT_OF_ORDER, _IN_ORDER)
        found.append(pa.table(table))
    if not found:
        raise ConfigError(f"{recording.path}: has no received messages to export")
    every = pa.concat_tables(found)
    keys = np.stack([every.column(name).to_numpy() for name in ("sender", "seq")])
    _, first = np.unique(keys, axis=1, return_index=True)
    return every.take(pa.array(np.sort(first)))


def _answers(recording: Recording, senders: set[int]) -> pa.Table:
    """When the answer to each message was sent and received, on the wall clock."""
    wanted = {f"sender/{number}": number for number in senders}
    found: dict[str, list[pa.Table]] = {ROUND_TRIP: [], ONE_WAY: []}
    for peer, file in _parts(recording, SPANS):
        window = window_of(recording, peer)
        rows = pq.read_table(file, columns=["t_ns", "source", "action", "value"])
        source, action = (np.array(rows.column(name).to_pylist(), dtype=object) for name in ("source", "action"))
        t_ns, seq = rows.column("t_ns").to_numpy(), rows.column("value").to_numpy().astype(np.int64)
        for kind, tables in found.items():
            name = "acked_us" if kind == ROUND_TRIP else "answered_us"
            for label, number in wanted.items():
                mine = (action == kind) & (source == label)
                columns = {"sender": np.full(int(mine.sum()), number), "seq": seq[mine], name: _us(t_ns[mine], window)}
                tables.append(pa.table(columns))
    if not found[ROUND_TRIP]:
        raise ConfigError(f"{recording.path}: has no answers to export")
    acked, answered = (pa.concat_tables(found[kind]) for kind in (ROUND_TRIP, ONE_WAY))
    return acked.join(answered, ["sender", "seq"], join_type="inner")


def _parts(recording: Recording, table: str) -> Iterable[tuple[PeerRecord, str]]:
    peers = {peer.id: peer for peer in recording.manifest.peers}
    for part in recording.parts:
        if part.table == table and part.peer in peers:
            yield peers[part.peer], str(recording.path / part.path)


def _us(t_ns: Int64s, window: ExportWindow) -> Int64s:
    return (t_ns + window.realtime_offset_ns) // 1000


def _word(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9.-]", "-", text)[:80]
