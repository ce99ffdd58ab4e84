"""Are times of other hosts mapped to the conductor's clock, exactly as the manifest says?"""

import json
from pathlib import Path

import msgspec
from pyspark.sql import SparkSession

from crescendo.pipeline.context import open_context
from crescendo.pipeline.job import analyze
from crescendo.pipeline.joint_scan import can_join
from crescendo.pipeline.source.ingest import readable_recording
from crescendo.pipeline.source.recorded_stalls import stalls_of
from crescendo.record.manifest import Clock, read_manifest, write_manifest
from crescendo.record.reader import open_recording
from tiny_recordings import MEASURE_NS, MS, SENDER_PEER, START_NS, Tiny, silent

SHIFT_NS = 3_600 * 10**9
DRIFT_PPB = 500_000.0


def host_time(ours_ns: int) -> int:
    """The truth: what the sender's clock shows, an hour ahead and fast."""
    return ours_ns + SHIFT_NS + round((ours_ns - START_NS) * DRIFT_PPB * 1e-9)


def recorded(run_dir: Path) -> Path:
    """Ten messages with 3 ms on the network, and a stall of the sender; the sender's clock is not the conductor's."""
    tiny = Tiny()
    for seq in range(10):
        due_ns = MEASURE_NS + seq * 100 * MS
        tiny.sent.append((0, seq, 1, host_time(due_ns), host_time(due_ns + MS), 100))
        tiny.received.append(
            (0, 0, seq, host_time(due_ns), host_time(due_ns + MS), due_ns + 4 * MS, seq, 100, 0)
        )  # fmt: skip
    stall = {"peer": SENDER_PEER, "from_ns": host_time(MEASURE_NS), "duration_ns": MS}
    tiny.events.append((host_time(MEASURE_NS), SENDER_PEER, "stall", json.dumps(stall)))
    tiny.write(run_dir)
    manifest = read_manifest(run_dir)
    peers = [msgspec.structs.replace(peer, host="far") if peer.id == SENDER_PEER else peer for peer in manifest.peers]
    # The inverse of `host_time`: a line in the host's time, with its reference at the start of the run.
    drift = 1 / (1 + DRIFT_PPB * 1e-9) - 1
    far = Clock("far", 0, -SHIFT_NS, drift * 1e9, 20_000, START_NS + SHIFT_NS)
    near = [msgspec.structs.replace(clock, bound_ns=0) for clock in manifest.clocks]
    write_manifest(run_dir, msgspec.structs.replace(manifest, peers=peers, clocks=[*near, far]))
    return run_dir


def test_latencies_are_those_of_one_clock_and_the_bound_is_shown(tmp_path: Path, spark: SparkSession) -> None:
    summary = analyze(recorded(tmp_path / "run"), spark, silent)
    latency = {row.kind: row for row in summary.latency if row.phase == "measure"}
    assert summary.clock_bound_ns == 20_000
    for kind, truth_ns in (("response", 4 * MS), ("transfer", 3 * MS)):
        row = latency[kind]
        assert row.count == 10
        assert abs(row.min_ns - truth_ns) <= 10
        assert abs(row.max_ns - truth_ns) <= 10


def test_stalls_of_another_host_are_on_the_conductors_clock(tmp_path: Path) -> None:
    run_dir = recorded(tmp_path / "run")
    files = [str(run_dir / part.path) for part in open_recording(run_dir).parts if part.table == "events"]
    ((_, (stall,)),) = stalls_of("sender", files, read_manifest(run_dir))
    assert abs(stall.from_ns - MEASURE_NS) <= 10


def test_runs_with_other_clocks_are_analysed_alone(tmp_path: Path, spark: SparkSession) -> None:
    run_dir = recorded(tmp_path / "run")
    assert not can_join(open_context(readable_recording(run_dir), spark, full=False))
    manifest = read_manifest(run_dir)
    write_manifest(run_dir, msgspec.structs.replace(manifest, clocks=manifest.clocks[:1]))
    assert can_join(open_context(readable_recording(run_dir), spark, full=False))
