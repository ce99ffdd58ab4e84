"""Does the page word what the table of recoveries says, and nothing else?"""

import json
from pathlib import Path

import msgspec
import pyarrow.parquet as pq

from crescendo.record.summary import TABLES_DIR
from crescendo.record.tables import EFFECTS, RECOVERY, EffectRow, RecoveryRow
from crescendo.report.data.small_tables import SmallTables
from crescendo.report.sections.agent_events import agents_section
from crescendo.report.sections.faults import faults_section
from crescendo.report.sections.outages import outages
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


def effect(at_s: float, kind: str, detail: dict[str, object]) -> EffectRow:
    return EffectRow(
        t_ns=int((8 + at_s) * S), second=int(at_s), source="agent-north", kind=kind, detail=json.dumps(detail),
        rate_before=200.0, rate_after=100.0, p99_before_ns=None, p99_after_ns=None, backlog_before=0, backlog_peak=0,
        outage_start_ns=None, outage_gap_ns=None,
    )  # fmt: skip


def test_what_agents_did_is_shown_with_the_traffic_around_it(tmp_path: Path) -> None:
    rows = [
        effect(1, "agent source", {"source": "/srv/handlers", "commit": "2c26"}),
        effect(2, "handler started", {"handler": "cut-1", "command": "cut", "parameters": {"link": "a-b"}}),
        effect(2.5, "handler event", {"handler": "cut-1", "event": "cut", "link": "a-b"}),
        effect(3, "handler ended", {"handler": "cut-1", "code": 3, "reason": "", "output": "no such link\n"}),
        effect(4, "disconnect", {"receiver": 0}),
    ]
    directory = tmp_path / TABLES_DIR / EFFECTS.name
    directory.mkdir(parents=True)
    pq.write_table(EFFECTS.to_arrow(rows), directory / "part-00000.parquet")
    small = SmallTables(tmp_path, 8 * S)
    found = agents_section(small)
    assert found is not None
    assert found.lead == "agent-north: 1 handler ended, 1 of them badly."
    cells = found.grids["Events of agents"].rows
    assert [row[0] for row in cells] == ["agent source", "handler started", "handler event", "handler ended"]
    assert [row[4] for row in cells] == [
        "/srv/handlers 2c26",
        'cut {"link": "a-b"}',
        '{"event": "cut", "link": "a-b"}',
        "exit code 3: no such link",
    ]
    others = outages(small)
    assert others is not None
    assert [row[0] for row in others.grids["Faults and broken connections"].rows] == ["disconnect"]


def test_a_run_without_agents_has_no_section_about_them(tmp_path: Path) -> None:
    assert agents_section(SmallTables(tmp_path, 8 * S)) is None
