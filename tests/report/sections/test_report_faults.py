"""Does the page word what the table of recoveries says, and nothing else?"""

from pathlib import Path

import msgspec
import pyarrow.parquet as pq

from crescendo.record.summary import TABLES_DIR
from crescendo.record.tables import RECOVERY, RecoveryRow
from crescendo.report.data.small_tables import SmallTables
from crescendo.report.sections.faults import faults_section
from crescendo.report.sections.section import Section

S = 10**9
ROW = RecoveryRow(
    fault=0, action="stop", target="router2", means="", planned_ns=10 * S, start_ns=10 * S, end_ns=12 * S,
    detected_ns=None, outage_ns=2 * S, resumed=True, recovered_ns=3 * S, caught_up_ns=4 * S, until_ns=14 * S, lost=7,
    lost_acknowledged=2, never_offered=1, redelivered=3, duplicated=4, reordered=5, p99_before_ns=10**6,
    p99_during_ns=2 * S, p99_after_ns=None,
)  # fmt: skip


def section(tmp_path: Path, *rows: RecoveryRow) -> Section | None:
    directory = tmp_path / TABLES_DIR / RECOVERY.name
    directory.mkdir(parents=True)
    pq.write_table(RECOVERY.to_arrow(rows), directory / "part-00000.parquet")
    return faults_section(SmallTables(tmp_path, 8 * S))


def test_a_fault_is_one_paragraph_with_its_numbers(tmp_path: Path) -> None:
    found = section(tmp_path, ROW)
    assert found is not None
    assert found.paragraphs == (
        "Fault 1: router2 was shut down at 2.00 s, for 2 s. No connection of the load was lost. Deliveries stopped for "
        "2 s; the rate was back at 95 % after 3 s, and the backlog was as before after 4 s. Lost: 7 (2 of them "
        "acknowledged), never offered: 1, redelivered: 3, duplicated: 4, reordered: 5. p99: 1 ms before, 2 s during "
        "it.",
    )
    assert found.lead == "1 fault on purpose; 7 messages lost around it. The longest outage lasted 2 s."
    assert len(found.grids["Faults"].rows) == 1


def test_what_did_not_happen_is_said(tmp_path: Path) -> None:
    never = msgspec.structs.replace(
        ROW, action="pause", target="system", end_ns=None, detected_ns=5 * 10**6, resumed=False, recovered_ns=None
    )
    harmless = msgspec.structs.replace(ROW, action="disconnect", means="4 connections", outage_ns=None, lost=0)
    found = section(tmp_path, never, harmless)
    assert found is not None
    first, second = found.paragraphs
    assert (
        "The system was paused at 2.00 s, until the run ended. The first connection of the load was lost after 5 ms."
        in first
    )
    assert "did not resume while messages were due" in first
    assert "The connections of router2 were reset (4 connections)" in second
    assert "Deliveries did not stop. Lost: 0, never" in second


def test_a_run_without_faults_has_no_section(tmp_path: Path) -> None:
    assert section(tmp_path) is None
