"""Recordings with known peers and seeded numbers, without an analysis: the summary is written by hand."""

import json
from pathlib import Path

import numpy as np

from crescendo.model.experiment_file import experiment_from, to_document
from crescendo.model.verdict import Bound, Verdict, judge, judge_check
from crescendo.record.manifest import Clock, ConnectionRecord, Manifest, PeerRecord, Phase, State, write_manifest
from crescendo.record.reader import journalled_parts
from crescendo.record.schema import EVENTS, READINGS, RECEIVED, SENT, Flag
from crescendo.record.summary import Ledger, Rate, Summary, write_summary
from crescendo.record.writer import Recorder

SECOND_NS = 10**9
START_NS = 700 * SECOND_NS
MEASURE_NS, END_NS = START_NS + 2 * SECOND_NS, START_NS + 27 * SECOND_NS + SECOND_NS // 2
OFFSET_NS = 1_893_553_445 * SECOND_NS + 123_456_789 - START_NS  # the run began at 2030-01-02 03:04:05 UTC
MESSAGES = 40_000
STALL_S = (10, 12)  # seconds of the measure phase in which nothing is sent
SENDERS, RECEIVERS = ("sender-0",), ("receiver-0", "receiver-1")
ARTEMIS, ROUTER = "inspector-artemis", "inspector-qpid-dispatch"
PASSWORD = "s3cret"

Readings = list[tuple[int, str, str, float]]
Texts = list[tuple[int, dict[str, dict[str, str]]]]


def write_run(run_dir: Path, readings: dict[str, Readings], texts: dict[str, Texts], *, lost: int = 0) -> Path:
    run_dir.mkdir(parents=True)
    _write_messages(run_dir)
    for source, seen in readings.items():
        recorder = Recorder(run_dir, source)
        for t_ns, entity, metric, value in seen:
            recorder.append(READINGS, 1, t_ns, source, entity, metric, value)
        for t_ns, changed in texts.get(source, []):
            recorder.append(EVENTS, 1, t_ns, source, "texts", json.dumps(changed))
        recorder.append(EVENTS, 1, END_NS, source, "look-failed", json.dumps({"reason": "gone"}))
        recorder.close()
    write_manifest(run_dir, _manifest(run_dir, list(readings)))
    write_summary(run_dir, _summary(lost))
    return run_dir


def _write_messages(run_dir: Path) -> None:
    draw = np.random.default_rng(11)
    intended_ns = np.sort(draw.integers(START_NS, END_NS + 2 * SECOND_NS, MESSAGES))
    stall = MEASURE_NS + np.array(STALL_S) * SECOND_NS
    sent_ns = np.where((intended_ns >= stall[0]) & (intended_ns < stall[1]), stall[1], intended_ns)
    received_ns = sent_ns + draw.lognormal(np.log(700_000), 1.2, MESSAGES).astype(np.int64)
    received_ns[9000:9400:51] = sent_ns[9000:9400:51] - 3_000  # clock error
    flags = np.zeros(MESSAGES, np.int16)
    flags[::997] = int(Flag.STRAY)
    flags[::1009] = int(Flag.REDELIVERED)
    seq = np.arange(MESSAGES)
    recorder = Recorder(run_dir, SENDERS[0])
    recorder.append(SENT, MESSAGES, (seq % 2).astype(np.int16), seq // 2, 1, intended_ns, sent_ns, 256)
    recorder.close()
    for number, peer in enumerate(RECEIVERS):
        mine = np.flatnonzero(seq % 2 == number)
        mine = mine[np.argsort(received_ns[mine], kind="stable")]
        columns = (intended_ns[mine], sent_ns[mine], received_ns[mine], np.arange(mine.size))
        recorder = Recorder(run_dir, peer, part_rows=7_000, block_rows=1_000)
        recorder.append(RECEIVED, mine.size, number, number, seq[mine] // 2, *columns, 256, flags[mine])
        recorder.close()


def _manifest(run_dir: Path, inspectors: list[str]) -> Manifest:
    experiment = experiment_from(
        {
            "name": "exported",
            "system": {"url": "amqp://broker.lab:5672"},
            "workload": {"address": "queue://perf", "senders": 2, "receivers": 2, "rate": 735.4, "size": 256},
        }
    )
    document = to_document(experiment)
    document["system"]["url"] = f"amqp://quick:{PASSWORD}@broker.lab:5672"
    peers = [(name, name.split("-", maxsplit=1)[0]) for name in (*SENDERS, *RECEIVERS, *inspectors)]
    return Manifest(
        run="exported",
        tag=1,
        experiment=document,
        command=[],
        started_ns=START_NS + OFFSET_NS,
        state=State.SEALED,
        versions={"crescendo": "0.1.0"},
        host={"system": "Linux 6.1.0", "machine": "x86_64", "cores": 8, "memory_bytes": 33_500_000_000},
        system={"kind": "artemis", "version": "2.50.0", "java_version": "17.0.9"},
        clocks=[Clock("lab", OFFSET_NS)],
        peers=[PeerRecord(name, role, "lab", 1, "finished") for name, role in peers],
        connections=[
            ConnectionRecord(number, "sender", SENDERS[0], "main", "queue://perf", "perf") for number in range(2)
        ] + [
            ConnectionRecord(number, "receiver", peer, "main", "queue://perf", "perf", "queue://perf")
            for number, peer in enumerate(RECEIVERS)
        ],
        phases=[Phase("warmup", START_NS, MEASURE_NS), Phase("measure", MEASURE_NS, END_NS)],
        files=list(journalled_parts(run_dir)),
    )  # fmt: skip


def _verdict(lost: int) -> Verdict:
    return judge([judge_check("lost", Bound.parse("== 0"), lost, offered=0, reasons=[])], [])


def _summary(lost: int) -> Summary:
    counts = dict.fromkeys(Ledger.__struct_fields__[3:], 0)
    return Summary(
        run="exported", state="sealed", verdict=_verdict(lost), validity=[],
        rate=Rate(offered=0, sent=0, sustained=0, duration_ns=0, bytes_per_second=0), latency=[],
        ledger=[Ledger(scope="total", sender=None, subscription=None, **counts)], clock_bound_ns=0,
    )  # fmt: skip
