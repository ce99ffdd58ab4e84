"""Is every loss, duplicate, swap and stall of a system named, in every protocol?

One run in every protocol at once, through a server that loses, repeats and swaps messages at positions that only it
knows, and is silent twice. What it did is read from its truth files. The recording is read with DuckDB, and the tables
of the analysis as they are.
"""

import numpy as np
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from crescendo.pipeline.job import analyze
from reference_comparison import Comparison, Key
from reference_protocols import PROTOCOLS
from reference_runs import ReferenceRun, record
from reference_scenario import MS, Delay, Faults, Route, Scenario, Stall, destination_of

RATE = 100.0
MESSAGES = 400
FAULTS = Faults(among=390, lost=7, duplicated=6, swapped=5)
FAULTY = "faulty"
STALLS = [Stall(800 * MS, 500 * MS), Stall(2200 * MS, 800 * MS)]

_FIRST_COPIES_BEHIND = """
select sender, seq from (
    select *, max(seq) over (partition by sender order by {order} rows between unbounded preceding and 1 preceding)
    as highest from {table} where {where}
) where copy = 0 and seq < highest
"""

pytestmark = pytest.mark.shares("spark")  # all of them, so that one worker makes the run
each_protocol = pytest.mark.parametrize("protocol", PROTOCOLS)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> ReferenceRun:
    scenario = Scenario(15, {FAULTY: Route(Delay(2 * MS), FAULTS)}, STALLS)
    return record(scenario, tmp_path_factory.mktemp("faults"), rate=RATE, measure=f"{int(MESSAGES / RATE * 1000)}ms")


@pytest.fixture(scope="module")
def compared(run: ReferenceRun) -> Comparison:
    return Comparison(run)


@pytest.fixture(scope="module")
def planted(compared: Comparison) -> dict[str, list[Key]]:
    """What the server did, by the names that the ledger uses."""
    behind = _FIRST_COPIES_BEHIND.format(table="truth", order="departed", where="departure_ns is not null")
    planted = {
        "lost": compared.keys("select sender, seq from truth where departure_ns is null"),
        "duplicated": compared.keys("select sender, seq from truth where copy = 1"),
        "reordered": compared.keys(behind),
    }
    expected = {"lost": FAULTS.lost, "duplicated": FAULTS.duplicated, "reordered": FAULTS.swapped}
    assert {kind: len(keys) for kind, keys in planted.items()} == {k: n * len(PROTOCOLS) for k, n in expected.items()}
    return planted


@each_protocol
def test_the_recording_holds_exactly_what_the_system_sent(compared: Comparison, protocol: str) -> None:
    assert compared.order_received(protocol, FAULTY) == compared.order_departed(protocol, FAULTY)


def test_the_recording_names_every_loss_duplicate_and_swap(compared: Comparison, planted: dict[str, list[Key]]) -> None:
    assert compared.keys("select sender, seq from sent anti join received using (sender, seq)") == planted["lost"]
    assert compared.keys("select sender, seq from received where copy = 1") == planted["duplicated"]
    flagged = compared.keys("select sender, seq from received where copy = 0 and flags & 8 > 0")
    assert flagged == planted["reordered"]


@pytest.fixture(scope="module")
def stalls(compared: Comparison) -> list[tuple[int, int]]:
    """When each stall began and ended, by the server's clock."""
    stalls = compared.rows("select start_ns, end_ns from stalls order by start_ns")
    assert all(end_ns - start_ns >= stall.length_ns for (start_ns, end_ns), stall in zip(stalls, STALLS, strict=True))
    return [(start_ns, end_ns) for start_ns, end_ns in stalls]


@each_protocol
def test_every_stall_is_found_with_its_length(
    compared: Comparison, stalls: list[tuple[int, int]], protocol: str
) -> None:
    found = compared.deliveries(protocol, FAULTY)
    way_ns = found.way_out_ns.max()  # each end of a gap is seen this much later, at most
    for start_ns, end_ns in stalls:
        gap, true_gap = (_silence(times_ns, start_ns, end_ns) for times_ns in (found.received_ns, found.departure_ns))
        assert true_gap[0] <= start_ns < end_ns <= true_gap[1]
        assert 0 <= gap[0] - true_gap[0] <= way_ns
        assert 0 <= gap[1] - true_gap[1] <= way_ns


@each_protocol
def test_messages_that_were_due_in_a_stall_have_waited_for_its_end(
    compared: Comparison, stalls: list[tuple[int, int]], protocol: str
) -> None:
    """Open loop: the schedule does not wait for a silent system, and the response says how long it was silent."""
    sender = compared.sender_of[protocol, FAULTY]
    found = compared.deliveries(protocol, FAULTY)
    for start_ns, end_ns in stalls:
        due = "select count(*) from sent where sender = ? and intended_ns >= ? and intended_ns < ?"
        [(count,)] = compared.rows(due, sender, start_ns, end_ns)
        assert abs(count - RATE * (end_ns - start_ns) / 1e9) <= 1
        waited = (found.intended_ns >= start_ns) & (found.intended_ns < end_ns)
        assert count - FAULTS.lost <= np.count_nonzero(waited)
        assert (found.received_ns[waited] >= end_ns).all()


def test_the_tables_name_every_loss_duplicate_swap_and_stall(
    run: ReferenceRun,
    compared: Comparison,
    planted: dict[str, list[Key]],
    stalls: list[tuple[int, int]],
    spark: SparkSession,
) -> None:
    analyze(run.run_dir, spark, lambda _: None)
    tables = run.run_dir / "tables"
    named: dict[str, list[Key]] = {kind: [] for kind in planted}
    for row in pq.read_table(tables / "ledger_ranges").to_pylist():
        named[row["kind"]] += [(row["sender"], seq) for seq in range(row["first_seq"], row["last_seq"] + 1)]
    assert {kind: sorted(keys) for kind, keys in named.items()} == planted
    rows = pq.read_table(tables / "outages").to_pylist()
    outages = {(row["subscription"], row["start_ns"], row["end_ns"]) for row in rows}
    for protocol in PROTOCOLS:
        received_ns = compared.deliveries(protocol, FAULTY).received_ns
        for stall in stalls:
            assert (f"queue://{destination_of(protocol, FAULTY)}", *_silence(received_ns, *stall)) in outages


def _silence(times_ns: np.ndarray, start_ns: int, end_ns: int) -> tuple[int, int]:
    """The last time before the middle of a stall, and the first time after it."""
    middle_ns = (start_ns + end_ns) // 2
    return int(times_ns[times_ns < middle_ns].max()), int(times_ns[times_ns > middle_ns].min())
