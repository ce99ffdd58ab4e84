"""Does the page show every group, destination and protocol of a run?"""

from pathlib import Path

from msgspec import structs

from crescendo.record.summary import SliceResult, read_summary, write_summary
from crescendo.report.page import render_report
from crescendo.report.sections.slice_tables import slices_section
from report_samples import SAMPLES, write_sample


def test_the_page_has_a_table_of_groups_only_if_there_are_several(tmp_path: Path) -> None:
    run_dir = write_sample(tmp_path / "run", SAMPLES["passing"])
    summary = read_summary(run_dir)
    measured = [row for row in summary.latency if row.phase == "measure"]
    orders = SliceResult("group", "orders", summary.rate, measured, summary.total)
    slow = structs.replace(summary.rate, sustained=7.0, offered=0.0)
    events = SliceResult("group", "<events>", slow, measured, structs.replace(summary.total, duplicated=12_345))
    assert "By group" not in render_report(run_dir)
    write_summary(run_dir, structs.replace(summary, slices=[orders]))
    assert "By group" not in render_report(run_dir)
    write_summary(run_dir, structs.replace(summary, slices=[orders, events]))
    page = render_report(run_dir)
    assert "2 groups" in page
    assert "&lt;events&gt;" in page
    assert "12,345" in page
    section = slices_section(read_summary(run_dir))
    assert section is not None
    (grid,) = section.grids.values()
    assert [len(row) for row in grid.rows] == [len(grid.columns)] * 2
    assert grid.rows[1][2:4] == ["unbounded", "7"]
    unknown = structs.replace(events, shares_queue=True)
    section = slices_section(structs.replace(summary, slices=[orders, unknown]))
    assert section is not None
    (grid,) = section.grids.values()
    assert grid.rows[1][3] == grid.rows[1][-1] == "–"
