"""A recording in which every message was answered, with one broken order, one duplicate and one missing answer."""

from pathlib import Path

import numpy as np

from crescendo.model.experiment_file import experiment_from, to_document
from crescendo.record.manifest import Clock, ConnectionRecord, Manifest, PeerRecord, Phase, State, write_manifest
from crescendo.record.reader import journalled_parts
from crescendo.record.schema import RECEIVED, SPANS, Flag
from crescendo.record.writer import Recorder

MS, SECOND = 10**6, 10**9
START_NS, OFFSET_NS = 700 * SECOND, 1_893_553_445 * SECOND
WARMUP, MEASURED, SIZE = 50, 100, 128
OUT_OF_ORDER, UNANSWERED = 70, 90
TRANSFER_MS, ANSWER_MS = 3, 7  # after the send: when it arrived and was answered, when the answer arrived


def write_answered_run(run_dir: Path, mode: str = "echo") -> Path:
    """One message every 10 ms; the first 50 belong to the warm-up."""
    run_dir.mkdir(parents=True)
    seq = np.arange(WARMUP + MEASURED)
    sent_ns = START_NS + seq * 10 * MS
    flags = np.where(seq == OUT_OF_ORDER, int(Flag.OUT_OF_ORDER), 0).astype(np.int16)
    receiver = Recorder(run_dir, "receiver-0")
    arrived_ns = sent_ns + TRANSFER_MS * MS
    receiver.append(RECEIVED, seq.size, 0, 0, seq, sent_ns, sent_ns, arrived_ns, seq, SIZE, flags)
    again = np.array([80])
    columns = (sent_ns[again], sent_ns[again], arrived_ns[again] + MS, np.array([seq.size]))
    receiver.append(RECEIVED, 1, 0, 0, again, *columns, SIZE, np.array([int(Flag.REDELIVERED)], np.int16))
    receiver.close()
    sender = Recorder(run_dir, "sender-0")
    for number in seq[seq != UNANSWERED]:
        for action, after_ms in (("round trip", ANSWER_MS), ("one way", TRANSFER_MS)):
            t_ns = int(sent_ns[number]) + after_ms * MS
            sender.append(SPANS, 1, t_ns, "sender/0", action, after_ms * MS, float(number), "ok", "")
    sender.close()
    load = {"address": "queue://perf", "rate": 100, "size": SIZE, "mode": {"kind": mode}}
    experiment = experiment_from({"name": "answered", "system": {"kind": "loopback"}, "workload": load})
    write_manifest(
        run_dir,
        Manifest(
            run="answered",
            tag=1,
            experiment=to_document(experiment),
            command=[],
            started_ns=START_NS + OFFSET_NS,
            state=State.SEALED,
            versions={"crescendo": "0.1.0"},
            host={"system": "Linux", "machine": "x86_64", "cores": 2, "memory_bytes": 10**9},
            system={"kind": "loopback"},
            clocks=[Clock("lab", OFFSET_NS)],
            peers=[PeerRecord(name, name.split("-")[0], "lab", 1, "finished") for name in ("sender-0", "receiver-0")],
            connections=[
                ConnectionRecord(0, "sender", "sender-0", "main", "queue://perf", "perf"),
                ConnectionRecord(0, "receiver", "receiver-0", "main", "queue://perf", "perf", "queue://perf"),
            ],
            phases=[
                Phase("warmup", START_NS, START_NS + WARMUP * 10 * MS),
                Phase("measure", START_NS + WARMUP * 10 * MS, START_NS + (WARMUP + MEASURED) * 10 * MS),
            ],
            files=list(journalled_parts(run_dir)),
        ),
    )
    return run_dir
