"""What does it cost to have a recording on disk before it is sealed?

Writes the rows of 20 s of load at 20,000 messages/s, with and without syncing, in turns that alternate their order, and
takes the time to seal it (close the recorder, write the manifest) and the CPU time of everything. The disk is that of
the directory it is run in.
"""

import shutil
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np

from crescendo.record.manifest import Manifest, State, write_manifest
from crescendo.record.schema import RECEIVED, SENT
from crescendo.record.writer import Recorder

TURNS = 11
SECONDS = 20
RATE = 20_000


def main() -> None:
    seals: dict[bool, list[float]] = {True: [], False: []}
    cpu: dict[bool, list[float]] = {True: [], False: []}
    slowest: dict[bool, list[float]] = {True: [], False: []}
    for turn in range(TURNS):
        for durable in (True, False) if turn % 2 else (False, True):
            seal_s, cpu_s, append_s = _once(durable)
            seals[durable].append(seal_s)
            cpu[durable].append(cpu_s)
            slowest[durable].append(append_s)
    for durable in (False, True):
        print(
            f"{'synced' if durable else 'not synced':10}  seal {_spread(seals[durable], 1e3)} ms,"
            f" CPU {_spread(cpu[durable], 1e3)} ms, slowest append {_spread(slowest[durable], 1e3)} ms"
        )
    ratios = [on / off for on, off in zip(cpu[True], cpu[False], strict=True)]
    print(f"CPU with syncing ÷ without: {_spread(ratios, 1)} (median, smallest and largest of {TURNS})")


def _spread(values: list[float], scale: float) -> str:
    return f"{statistics.median(values) * scale:.2f} ({min(values) * scale:.2f} to {max(values) * scale:.2f})"


def _once(durable: bool) -> tuple[float, float, float]:
    scratch = Path(tempfile.mkdtemp(prefix="crescendo-bench-", dir="."))
    try:
        random, slowest = np.random.default_rng(1), 0.0
        began_cpu = time.process_time()
        recorder = Recorder(scratch, "sender-0", durable=durable)
        for second in range(SECONDS):
            at = np.cumsum(random.integers(1, 100_000, RATE)) + second * 10**9
            seqs = range(second * RATE, (second + 1) * RATE)
            began = time.perf_counter()
            recorder.append(SENT, RATE, 0, seqs, 1, at, at + 5000, 256)
            recorder.append(RECEIVED, RATE, 0, 0, seqs, at, at + 5000, at + 90_000, seqs, 256, 0)
            recorder.tick(second * 10**9)
            slowest = max(slowest, time.perf_counter() - began)
        began = time.perf_counter()
        recorder.close()
        write_manifest(scratch, Manifest("bench", 1, {}, [], 0, state=State.SEALED), durable=durable)
        return time.perf_counter() - began, time.process_time() - began_cpu, slowest
    finally:
        shutil.rmtree(scratch)


if __name__ == "__main__":
    main()
