"""A range of time on the page of a run: charts and tables are about it, or say that they are not."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from playwright.sync_api import Page

from browser_reader import Reader, page_widths
from crescendo.model.histogram import bucket_of
from crescendo.record.tables import OUTAGES, SPAN_HISTOGRAM, SPANS
from crescendo.report.data import range_counts
from crescendo.report.data.chart_tables import read_tables
from crescendo.report.page import write_report
from report_samples import ORIGIN_NS, SAMPLES, SECOND_NS, STALLED_SECOND, latencies_of, write_sample

FIRST, LAST = STALLED_SECOND, STALLED_SECOND + 2


@pytest.fixture(scope="module")
def page_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The failing sample, with two outages, and requests that take a millisecond per second of the run."""
    run_dir = write_sample(tmp_path_factory.mktemp("range") / "run", SAMPLES["failing"])
    starts = [ORIGIN_NS + 3 * SECOND_NS, ORIGIN_NS + STALLED_SECOND * SECOND_NS]
    outages = [
        {
            "subscription": f"queue-{at}", "start_ns": start, "end_ns": start + SECOND_NS, "gap_ns": SECOND_NS,
            "earlier_rate": 5000.0, "recovered_ns": 1, "area_lost": 5, "caught_up_ns": 1,
            "catch_up_messages": 1, "peak_rate": 2.0,
        }
        for at, start in enumerate(starts)
    ]  # fmt: skip
    _table(run_dir, OUTAGES.name, outages)
    spans, histogram = [], []
    for action, factor in (("send", 2), ("send/database", 1)):
        durations = np.repeat(np.arange(12), 100) * 1_000_000 * factor + 1_000_000
        statistics = {"count": 1200, "mean_ns": float(durations.mean()), "min_ns": 1, "max_ns": int(durations.max())}
        statistics |= {name: 1 for name in SPANS.column_names if name.startswith("p") and name != "phase"}
        statistics |= {"negative": 0}
        row = {"action": action, "phase": "measure", "outcome": None, "total_ns": int(durations.sum()), "share": 0.5}
        spans.append(row | statistics)
        for second in range(12):
            value = int(durations[second * 100])
            sums = {"count": 100, "sum_ns": value * 100, "min_ns": value, "max_ns": value}
            bucket = int(bucket_of(np.array([value]))[0])
            key = {"second": second, "phase": "measure", "action": action, "outcome": "ok", "bucket": bucket}
            histogram.append(key | sums)
    _table(run_dir, SPANS.name, spans)
    _table(run_dir, SPAN_HISTOGRAM.name, histogram)
    return write_report(run_dir)


def _table(run_dir: Path, name: str, rows: list[dict[str, object]]) -> None:
    folder = run_dir / "tables" / name
    folder.mkdir(parents=True)
    pq.write_table(pa.Table.from_pylist(rows), folder / "part-0.parquet")


def _drag(page: Page, chart: str, first: float, last: float) -> None:
    page.locator(f"[data-chart={chart}]").scroll_into_view_if_needed()
    plot = page.locator(f"[data-chart={chart}] .nsewdrag").bounding_box()
    assert plot is not None
    start, end = page.evaluate(f"document.querySelector('[data-chart={chart}]').layout.xaxis.range")
    y = plot["y"] + plot["height"] / 2
    page.mouse.move(plot["x"] + plot["width"] * (first - start) / (end - start), y)
    page.mouse.down()
    page.mouse.move(plot["x"] + plot["width"] * (last - start) / (end - start), y, steps=4)
    page.mouse.up()
    page.wait_for_selector("html[data-ranged]")


def _cells(page: Page, section: str) -> list[list[str]]:
    rows = page.locator(f"#{section} table[data-scope] tbody tr:visible")
    return [row.locator("th, td").all_inner_texts() for row in rows.all()]


def _ms(text: str) -> float:
    value, unit = text.split(" ")
    return float(value.replace(",", "")) * {"s": 1e3, "ms": 1.0, "µs": 1e-3}[unit]


def test_brushing_two_seconds_rescopes_charts_and_tables(page_path: Path, open_report: Reader) -> None:
    page = open_report(page_path)
    before = _cells(page, "latencies")
    assert len(_cells(page, "outages")) == 2
    shown = page.evaluate("document.querySelector('[data-chart=spectrum]').data[0].x.at(-1)")
    _drag(page, "rate", FIRST, LAST)
    second, response = latencies_of(SAMPLES["failing"])["response"]
    inside = response[(second >= FIRST) & (second < LAST)]
    rows = {row[1]: row for row in _cells(page, "latencies")}
    assert rows["response"][0] == "selected range"
    assert rows["response"][2] == f"{inside.size:,}"
    for column, expected in (
        (3, inside.min()), (4, np.percentile(inside, 50)), (5, np.percentile(inside, 90)),
        (7, np.percentile(inside, 99)), (10, inside.max()), (11, inside.mean()),
    ):  # fmt: skip
        assert _ms(rows["response"][column]) == pytest.approx(expected / 1e6, rel=0.01)
    assert rows["response"][9] == "too few"  # p99.99 of ten thousand samples
    assert [row[0] for row in _cells(page, "outages")] == ["queue-1"]
    tiers = {row[0]: row for row in _cells(page, "tiers")}
    assert tiers["send"][2:5] == ["200", "100.0 %", "14 ms"]
    assert tiers["send/database"][4] == "7.5 ms"
    text = page.locator("#range-text").inner_text()
    assert text.startswith("sent 5,000 msg/s · received 5,000 msg/s · response p50 ")
    now = page.evaluate("document.querySelector('[data-chart=spectrum]').data[0].x.at(-1)")
    assert now == pytest.approx(np.log10(inside.size / 10))
    assert now < shown
    share = page.evaluate(
        "document.querySelector('[data-chart=histogram]').data.map((t) => t.y.reduce((a, b) => a + b))"
    )
    assert share == pytest.approx([1.0] * 3)
    stale = page.locator("#ledger .whole-run").first
    note = stale.evaluate("(element) => getComputedStyle(element, '::before').content")
    assert "whole run" in note
    page.get_by_role("button", name="Whole run").click()
    page.wait_for_selector("html:not([data-ranged])")
    page.wait_for_timeout(300)
    assert _cells(page, "latencies") == before
    assert len(_cells(page, "outages")) == 2
    ranges = page.evaluate(
        "['rate', 'latency'].map((c) => document.querySelector(`[data-chart=${c}]`).layout.xaxis.range)"
    )
    assert ranges[0] == ranges[1] == [0, 12]


def test_a_range_can_be_typed_on_a_phone(page_path: Path, open_report: Reader) -> None:
    page = open_report(page_path, width=390)
    page.locator("#range input[name=from]").fill("8")
    page.locator("#range input[name=to]").fill("9.4")
    page.locator("#range input[name=to]").press("Enter")
    page.wait_for_selector("html[data-ranged]")
    assert page.locator("#range input[name=to]").input_value() == "9"  # whole seconds, as everything else
    assert {row[2] for row in _cells(page, "latencies")} == {"5,000"}
    whole, pushed, rightmost = page_widths(page)
    assert (whole, pushed) == (390, 0)
    assert rightmost <= 390


def test_wider_bins_keep_every_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_dir = write_sample(tmp_path / "run", SAMPLES["passing"])
    monkeypatch.setattr(range_counts, "MAX_CELLS", 4_000)
    document = range_counts.range_counts(run_dir, read_tables(run_dir), {})
    assert document is not None
    latency = document["latency"]
    cells = sum(len(series["count"]) for series in latency["series"].values())
    assert cells <= 4_000
    assert latency["width"] > 1
    for kind, (_, values) in latencies_of(SAMPLES["passing"]).items():
        series = latency["series"][kind]
        assert sum(series["count"]) == values.size
        assert sum(series["sum_ns"]) == values.sum()
        assert (min(series["min_ns"]), max(series["max_ns"])) == (values.min(), values.max())


@pytest.mark.parametrize("second", [-2, 15])
def test_a_request_before_the_first_or_after_the_last_message_is_counted(second: int, tmp_path: Path) -> None:
    run_dir = write_sample(tmp_path / "run", SAMPLES["passing"])
    key = {"second": second, "phase": "drain", "action": "send", "outcome": "ok"}
    bucket = int(bucket_of(np.array([5_000]))[0])
    _table(
        run_dir,
        SPAN_HISTOGRAM.name,
        [key | {"bucket": bucket, "count": 3, "sum_ns": 15_000, "min_ns": 5_000, "max_ns": 5_000}],
    )
    document = range_counts.range_counts(run_dir, read_tables(run_dir), {})
    assert document is not None
    spans = document["spans"]
    (used,) = spans["series"]["send"]["used"]
    assert used == second - spans["first"]
    assert 0 <= used < spans["bins"]
    assert spans["series"]["send"]["count"] == [3]
