"""Every table of any recording equals a plain recount of its rows; expensive tables appear when they should."""

import json
import math
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import recount
from crescendo.model.histogram import bucket_of
from crescendo.model.metrics import PERCENTILES
from crescendo.pipeline.job import analyze
from crescendo.pipeline.spark import evaluation
from crescendo.record.manifest import Phase as Stage
from crescendo.record.manifest import State
from crescendo.record.schema import Flag
from crescendo.record.summary import Summary
from tiny_recordings import MEASURE_NS, MS, RECEIVER_PEER, SECOND_NS, SENDER_PEER, START_NS, Tiny, silent

ACTIONS = ["round trip", "one way", "send", "send/database", "receive"]


def read(run_dir: Path, table: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pq.read_table(run_dir / "tables" / table).to_pylist()
    return rows


SCENARIOS = ["mixed, topic", "mixed, queue", "all lost", "all duplicated", "one message", "empty"]
COMPILED = {"mixed, queue"}
"""Where expressions are compiled, as for large recordings; small ones are interpreted."""


def recording(scenario: str, random: np.random.Generator) -> Tiny:
    """A run of this kind; everything else about it, including all numbers, is random."""
    mixed = scenario.startswith("mixed")
    topic = scenario.endswith("topic") if mixed else bool(random.integers(2))
    unbounded = False if mixed else bool(random.integers(2))
    senders, receivers = random.integers(2, 4, 2).tolist()
    address = "topic://t" if topic else "queue://q"
    group = {"address": address, "senders": senders, "receivers": receivers, "rate": 0 if unbounded else 50.0}
    ended = {"all lost": {RECEIVER_PEER: "lost"}, "mixed, queue": {SENDER_PEER: "lost"}}.get(scenario, {})
    tiny = Tiny(group=group, ended=ended, state=State.INCOMPLETE if ended else State.SEALED)
    messages = {"empty": 0, "one message": 1}.get(scenario, int(random.integers(120, 201)))
    spread_ns = int(random.choice([10**9, 10**4]))
    arrivals = []
    for sender in range(1 if scenario == "one message" else senders):
        intended_ns = START_NS - SECOND_NS // 2 + np.sort(random.integers(0, 6 * SECOND_NS, messages))
        late_ns = 0 * intended_ns if unbounded else random.integers(0, 50 * MS, messages)
        for seq in range(messages):
            due_ns, late = int(intended_ns[seq]), int(late_ns[seq])
            tiny.send(sender, seq, due_ns, late)
            if random.random() < 0.1:
                tiny.send(sender, seq, due_ns, late + MS, attempt=2)
            times = int(random.choice([0, 1, 1, 1, 2])) if mixed else 1
            times = {"all lost": 0, "all duplicated": 2}.get(scenario, times)
            for receiver in range(receivers) if topic else [int(random.integers(receivers))]:
                # Some arrive before they were sent, as with the clocks of two machines.
                transfers_ns = [int(value) for value in random.integers(-5_000, spread_ns, times)]
                arrivals += [(due_ns + late + value, receiver, sender, seq, due_ns, late) for value in transfers_ns]
        for seq in range(0, messages - 4, 5):
            settled_ns = int(intended_ns[seq]) + int(random.integers(1, 80 * MS))
            outcome = int(random.choice([1, 1, 1, 2, 3, 4]))
            last = seq + int(random.integers(5))
            tiny.settled.append((sender, seq, last, int(intended_ns[seq]), settled_ns, outcome))
    for received_ns, receiver, sender, seq, due_ns, late in sorted(arrivals):
        flags = int(random.choice([0, 0, 0, 0, Flag.REDELIVERED, Flag.STRAY]))
        tiny.deliver(receiver, sender, seq, due_ns, received_ns, flags, late)
    for _ in range(150 if mixed else 0):
        t_ns, action = START_NS + int(random.integers(5 * SECOND_NS)), str(random.choice(ACTIONS))
        outcome = str(random.choice(["ok", "timeout"])) if action == "send" else "ok"
        tiny.spans.append((t_ns, "client", action, int(random.integers(10**9)), 0.0, outcome, ""))
    return tiny


def assert_described(row: dict[str, Any], values: list[int]) -> None:
    """One row of statistics against the sorted samples."""
    ordered = sorted(values)
    assert (row["count"], row["min_ns"], row["max_ns"]) == (len(values), ordered[0], ordered[-1])
    assert row["negative"] == sum(value < 0 for value in values)
    assert row["mean_ns"] == pytest.approx(float(np.mean(values)), rel=1e-9, abs=1e-3)
    for name, percent in PERCENTILES.items():
        rank = max(math.ceil(round(percent * len(values) / 100, 6)), 1)
        if len(values) - rank < 10:
            assert row[name] is row[f"{name}_low"] is row[f"{name}_high"] is None
        else:
            true = ordered[rank - 1]
            assert true <= row[name] <= min(true + abs(true) / 256 + 1, ordered[-1])
            assert row[f"{name}_low"] is row[f"{name}_high"] is None  # seven seconds are too few


# One recording of each scenario, different in each run of the tests: each one costs a dozen Spark jobs.
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_every_table_of_any_recording_equals_a_recount(
    spark: SparkSession, scenario: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if scenario in COMPILED:
        monkeypatch.setattr(evaluation, "INTERPRETED_ROWS", 0)
    seed = np.random.SeedSequence().entropy
    print(f"made with np.random.default_rng({seed})")  # pytest shows it when the test fails
    tiny = recording(scenario, np.random.default_rng(seed))
    summary = analyze(tiny.write(tmp_path), spark, silent, full=True)
    _compare_latency(tmp_path, tiny)
    _compare_summary(summary, tiny)
    _compare_jitter(tmp_path, tiny)
    _compare_spans(tmp_path, tiny)
    rows = read(tmp_path, "errors") if (tmp_path / "tables" / "errors").exists() else []
    found = {(row["second"], row["sender"], row["outcome"], row["messages"], row["share"]) for row in rows}
    assert found == recount.error_rows(tiny)
    backlog = {(row["subscription"], row["second"]): row for row in read(tmp_path, "backlog")}
    expected = recount.backlog_rows(tiny)
    assert {key: (row["sent"], row["received"], row["backlog"]) for key, row in backlog.items()} == expected
    assert all(row["peak"] >= row["backlog"] for row in backlog.values())


def _compare_latency(run_dir: Path, tiny: Tiny) -> None:
    samples = recount.latency_samples(tiny, unbounded=not tiny.group["rate"])
    rows = {
        tuple(row[key] for key in ("scope", "phase", "second", "party", "kind")): row
        for row in read(run_dir, "latency")
    }
    assert rows.keys() == samples.keys()
    for key, values in samples.items():
        assert_described(rows[key], values)


def _compare_summary(summary: Summary, tiny: Tiny) -> None:
    """The rows of the summary, against the sorted samples of each phase."""
    samples = recount.latency_samples(tiny, unbounded=not tiny.group["rate"])
    phases = {(key[1], key[4]): values for key, values in samples.items() if key[0] == "phase"}
    assert {(row.phase, row.kind) for row in summary.latency} == phases.keys()
    for row in summary.latency:
        values = phases[row.phase, row.kind]
        ordered = sorted(values)
        assert (row.count, row.min_ns, row.max_ns) == (len(values), ordered[0], ordered[-1])
        assert row.mean_ns == pytest.approx(float(np.mean(values)), rel=1e-12, abs=1e-3)
        assert row.negative == sum(value < 0 for value in values)
        for name, percent in PERCENTILES.items():
            rank = max(math.ceil(round(percent * len(values) / 100, 6)), 1)
            value = row.percentiles_ns[name]
            if len(values) - rank < 10:
                assert value is None
            else:
                true = ordered[rank - 1]
                assert value is not None
                assert true <= value <= min(true + abs(true) / 256 + 1, ordered[-1])


def _compare_jitter(run_dir: Path, tiny: Tiny) -> None:
    steps = recount.jitter_samples(tiny)
    rows = {row["receiver"]: row for row in read(run_dir, "jitter")}
    assert rows.keys() == steps.keys()
    counts: dict[tuple[int, int], int] = {}
    for receiver, values in steps.items():
        assert_described(rows[receiver], values)
        assert rows[receiver]["mean_abs_ns"] == pytest.approx(float(np.abs(values).mean()))
        assert rows[receiver]["rfc3550_ns"] == pytest.approx(recount.rfc3550(values))
        for bucket in bucket_of(np.array(values)).tolist():
            counts[receiver, bucket] = counts.get((receiver, bucket), 0) + 1
    histogram = {(row["receiver"], row["bucket"]): row["count"] for row in read(run_dir, "jitter_histogram")}
    assert histogram == counts
    series: dict[int, list[int]] = {}
    for row in sorted(read(run_dir, "jitter_series"), key=lambda row: (row["receiver"], row["arrival"])):
        series.setdefault(row["receiver"], []).append(row["jitter_ns"])
    assert series == {receiver: list(values) for receiver, values in steps.items() if len(values)}


def _compare_spans(run_dir: Path, tiny: Tiny) -> None:
    assert (run_dir / "tables" / "spans").exists() == bool(tiny.spans)
    samples = recount.span_samples(tiny)
    rows = {(row["phase"], row["action"], row["outcome"]): row for row in read(run_dir, "spans")} if tiny.spans else {}
    assert rows.keys() == samples.keys()
    for (phase, action, outcome), values in samples.items():
        row = rows[phase, action, outcome]
        assert_described(row, values)
        most = max(sum(each) for key, each in samples.items() if key[0] == phase)
        requests = {each.rpartition("/")[0] for at, each, _ in samples if at == phase and "/" in each}
        request = action if action in requests else action.rpartition("/")[0]
        whole = sum(samples[phase, request, None]) if (phase, request, None) in samples else most
        assert (row["total_ns"], row["share"]) == pytest.approx((sum(values), sum(values) / whole))


def interrupted() -> Tiny:
    """A hundred messages per second to two receivers; none arrive for a second, then all delayed ones at once."""
    tiny = Tiny(group={"receivers": 2, "rate": 100.0}, checks={"lost": 0})
    back_ns = MEASURE_NS + 2 * SECOND_NS
    arrivals = []
    for seq in range(390):
        due_ns = MEASURE_NS + seq * 10 * MS
        tiny.send(0, seq, due_ns)
        received_ns = due_ns + MS
        if back_ns - SECOND_NS <= due_ns < back_ns:
            received_ns = back_ns + (back_ns - due_ns) // 100  # in reverse order
        arrivals.append((received_ns, seq % 2, seq, due_ns))
    highest = [-1, -1]
    for received_ns, receiver, seq, due_ns in sorted(arrivals):
        late = seq < highest[receiver]
        highest[receiver] = max(seq, highest[receiver])
        tiny.deliver(receiver, 0, seq, due_ns, received_ns, int(Flag.OUT_OF_ORDER) if late else 0)
    fault = (back_ns - SECOND_NS, "agent-0", "fault", json.dumps({"action": "cut"}))
    cure = (back_ns - 100 * MS, "agent-0", "cure", json.dumps({"action": "cut"}))
    tiny.events += [fault, (MEASURE_NS, "conductor", "start", "{}"), cure]
    return tiny


def test_an_interruption_shows_in_outages_bursts_jitter_and_effects(spark: SparkSession, tmp_path: Path) -> None:
    tiny = interrupted()
    analyze(tiny.write(tmp_path), spark, silent)  # jitter was not requested, but the outage makes it worthwhile
    (outage,) = read(tmp_path, "outages")
    back_ns = MEASURE_NS + 2 * SECOND_NS
    # The first of the delayed messages was due 10 ms before deliveries resumed.
    first_ns = back_ns + 10 * MS // 100
    assert (outage["start_ns"], outage["end_ns"]) == (back_ns - SECOND_NS - 10 * MS + MS, first_ns)
    rows = {row["receiver"]: row for row in read(tmp_path, "bursts")}
    until_ns = outage["end_ns"] + outage["caught_up_ns"]
    for receiver, row in rows.items():
        own = sorted((each for each in tiny.received if each[0] == receiver), key=lambda each: each[6])
        steps = [b[5] - a[5] - (b[3] - a[3]) for a, b in pairwise(own)]
        burst = [(step, each) for step, each in zip(steps, own[1:], strict=True) if first_ns <= each[5] <= until_ns]
        assert row["messages"] == len(burst)
        assert row["negative"] == sum(step < 0 for step, _ in burst)
        assert row["inversions"] == sum(bool(each[8] & Flag.OUT_OF_ORDER) for _, each in burst) > 40
        assert row["max_jitter_ns"] == max(step for step, _ in burst)
    assert rows.keys() == {0, 1}
    assert {row["receiver"]: row["max_ns"] for row in read(tmp_path, "jitter")} == {
        receiver: max(steps) for receiver, steps in recount.jitter_samples(tiny).items()
    }
    fault, cure = read(tmp_path, "effects")
    assert (fault["kind"], fault["second"], json.loads(fault["detail"])) == ("fault", 2, {"action": "cut"})
    assert fault["outage_gap_ns"] == cure["outage_gap_ns"] == outage["gap_ns"]
    assert fault["rate_before"] == sum(row[5] < fault["t_ns"] for row in tiny.received) / 5
    assert fault["backlog_before"] <= 1
    assert fault["backlog_peak"] == 100


def test_an_uninterrupted_run_computes_no_expensive_table(spark: SparkSession, tmp_path: Path) -> None:
    tiny = Tiny(group={"rate": 100.0})
    tiny.carry(300)
    tiny.accept(0, 0, 299, MEASURE_NS, MEASURE_NS + MS)
    analyze(tiny.write(tmp_path), spark, silent)
    made = {path.name for path in (tmp_path / "tables").iterdir()}
    assert not made & {"jitter", "jitter_histogram", "bursts", "errors", "spans", "span_histogram"}
    assert {row["scope"] for row in read(tmp_path, "latency")} == {"total", "phase", "second"}


def test_jitter_is_the_same_however_the_arrivals_are_split_into_blocks(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("crescendo.pipeline.latency.jitter.BLOCK_BITS", 4)
    random = np.random.default_rng(9)
    tiny = Tiny(group={"receivers": 2, "rate": 100.0, "address": "queue://q"})
    for seq, latency_ns in enumerate(random.integers(0, 10**8, 200).tolist()):
        tiny.send(0, seq, MEASURE_NS + seq * MS)
        flags = int(Flag.STRAY) if seq % 7 == 1 else 0  # a stray takes an arrival number but is not a delivery
        tiny.deliver(seq % 2, 0, seq, MEASURE_NS + seq * MS, MEASURE_NS + seq * MS + latency_ns, flags)
    analyze(tiny.write(tmp_path), spark, silent, full=True)
    _compare_jitter(tmp_path, tiny)


def test_steady_and_drifting_metrics_are_distinguished(spark: SparkSession, tmp_path: Path) -> None:
    """The measure phase lasts twelve seconds; the backlog rises by ten messages per second, the rate is constant."""
    tiny = Tiny(group={"rate": 100.0}, phases=[Stage("measure", START_NS, START_NS + 12 * SECOND_NS)])
    for second in range(12):
        for number in range(100):
            seq = second * 100 + number
            due_ns = START_NS + second * SECOND_NS + number * 10 * MS
            tiny.send(0, seq, due_ns)
            if number < 90:
                tiny.deliver(0, 0, seq, due_ns, due_ns + MS)
    analyze(tiny.write(tmp_path), spark, silent)
    rows = {row["metric"]: row for row in read(tmp_path, "steady_state")}
    assert {metric: row["state"] for metric, row in rows.items()} == {"rate": "steady", "backlog": "rising"}
    assert (rows["rate"]["median"], rows["rate"]["slope"]) == (90.0, 0.0)
    assert (rows["backlog"]["slope"], rows["backlog"]["s"]) == (10.0, 66)
