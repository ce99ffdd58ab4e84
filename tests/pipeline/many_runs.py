"""Small runs: some with rows in every table, some that are fast to analyse."""

import json
from pathlib import Path

import numpy as np
from msgspec.structs import replace

from crescendo.record.manifest import read_manifest, write_manifest
from crescendo.record.reader import journalled_parts
from crescendo.record.schema import READINGS, Flag
from crescendo.record.writer import Recorder
from tiny_recordings import MEASURE_NS, MS, SECOND_NS, START_NS, Tiny


def eventful(seed: int = 1, messages: int = 400) -> Tiny:
    """A run with loss, duplicates, an outage, errors, spans and a fault; times come from a seed."""
    random = np.random.default_rng(seed)
    tiny = Tiny(group={"senders": 2, "receivers": 2, "rate": 50.0})
    for sender in range(2):
        arrivals = []
        for seq in range(messages // 2):
            due_ns = MEASURE_NS + seq * 15 * MS
            late_ns = int(random.integers(0, MS))
            tiny.send(sender, seq, due_ns, late_ns)
            delay_ns = SECOND_NS if MEASURE_NS + SECOND_NS < due_ns < MEASURE_NS + 2 * SECOND_NS else 0
            for _ in range(int(random.choice([0, 1, 1, 1, 1, 1, 1, 2]))):
                arrivals.append((due_ns + late_ns + delay_ns + int(random.integers(MS, 40 * MS)), seq, due_ns, late_ns))
        for received_ns, seq, due_ns, late_ns in sorted(arrivals):
            flags = int(random.choice([0, 0, 0, Flag.OUT_OF_ORDER]))
            tiny.deliver(sender, sender, seq, due_ns, received_ns, flags, late_ns)
        for seq in range(0, messages // 2, 5):
            sent_ns = MEASURE_NS + seq * 15 * MS
            settled_ns, outcome = sent_ns + int(random.integers(MS)), int(random.choice([1, 1, 2]))
            tiny.settled.append((sender, seq, seq + 4, sent_ns, settled_ns, outcome))
    for number in range(60):
        t_ns, duration_ns = START_NS + number * 50 * MS, int(random.integers(10**9))
        tiny.spans.append((t_ns, "client", ["round trip", "send"][number % 2], duration_ns, 0.0, "ok", ""))
    tiny.events.append(
        (MEASURE_NS + SECOND_NS, "conductor", "fault", json.dumps({"fault": 0, "do": "cut", "on": "link"}))
    )
    return tiny


def plain(seed: int = 1, messages: int = 200) -> Tiny:
    """A run with one lost message, and nothing else that would need another job."""
    random = np.random.default_rng(seed)
    tiny = Tiny(group={"rate": 50.0})
    for seq in range(messages):
        due_ns = MEASURE_NS + seq * 15 * MS
        tiny.send(0, seq, due_ns)
        if seq != 7:
            tiny.deliver(0, 0, seq, due_ns, due_ns + int(random.integers(MS, 40 * MS)))
    tiny.accept(0, 0, messages - 1, MEASURE_NS, MEASURE_NS + MS)
    return tiny


def write_run(folder: Path, name: str, tiny: Tiny, seed: int = 1, *, inspected: bool = False) -> Path:
    """Write a recording of this name, with readings of an inspector if `inspected`."""
    run_dir = folder / name
    run_dir.mkdir(parents=True)
    tiny.write(run_dir)
    if inspected:
        _inspect(run_dir, seed)
    manifest = read_manifest(run_dir)
    write_manifest(run_dir, replace(manifest, run=name, tag=seed, files=list(journalled_parts(run_dir))))
    return run_dir


def _inspect(run_dir: Path, seed: int) -> None:
    random = np.random.default_rng(seed)
    polls = np.arange(200)
    recorder = Recorder(run_dir, "inspector-0")
    t_ns = START_NS + polls * 30 * MS
    entity = np.array([f"queue/{number % 3}" for number in polls], object)
    recorder.append(READINGS, polls.size, t_ns, "inspector-0", entity, "depth", random.random(polls.size) / 3)
    recorder.close()
