"""The section "Inside the system": its text, and how it zooms in Chromium."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from playwright.sync_api import Browser, Page

from crescendo.model.errors import ConfigError
from crescendo.model.gauges import is_clock, is_idle
from crescendo.record.summary import TABLES_DIR
from crescendo.report.page import render_report, write_report
from inspector_samples import BROKER, GAP_S, QUEUES, curves, write_readings
from report_samples import SAMPLES, write_sample

CHARTS = ["inside-depth", "inside-memory", "inside-connections", "inside-unsettled", "inside-cpu"]


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_report(write_readings(write_sample(tmp_path_factory.mktemp("inside") / "run", SAMPLES["failing"])))


@pytest.fixture(scope="module")
def page_text(report: Path) -> str:
    return report.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def section(page_text: str) -> str:
    found = re.search(r'<section id="inside".*?</section>', page_text, flags=re.DOTALL)
    assert found
    return found[0]


@pytest.fixture(scope="module")
def figures(page_text: str) -> dict[str, Any]:
    return figures_of(page_text)


def figures_of(page: str) -> dict[str, Any]:
    found = re.search(r'id="figures">(.*?)</script>', page)
    assert found
    drawn: dict[str, Any] = json.loads(found[1])
    return drawn


def rows(section: str) -> list[list[str]]:
    body = re.findall(r"<tr[^>]*>(.*?)</tr>", section.split("<tbody>")[1], flags=re.DOTALL)
    return [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row, flags=re.DOTALL) for row in body]


def test_a_run_without_readings_has_no_such_section(tmp_path: Path) -> None:
    page = render_report(write_sample(tmp_path / "run", SAMPLES["passing"]))
    assert "Inside the system" not in page
    assert 'data-chart="inside' not in page


def test_every_gauge_with_readings_has_a_chart(section: str, figures: dict[str, Any]) -> None:
    assert [name for name in figures if name.startswith("inside-")] == CHARTS
    assert re.findall(r'data-chart="([^"]+)"', section) == [*CHARTS, "rate", "latency"]
    assert section.index('<details class="copies">') < section.index('data-chart="rate"')


def test_clocks_and_idle_queues_of_the_broker_tell_nothing() -> None:
    clocks = ("CurrentTimeMillis", "Uptime", "UptimeMillis", "ProcessCpuTime", "cpu_seconds", "LastSampleTimestamp")
    assert all(map(is_clock, clocks))
    assert not any(map(is_clock, ("MessageCount", "rss_bytes", "cpu_cores", "timeouts", "used")))
    own = (
        "queue/DLQ",
        "queue/ExpiryQueue",
        "queue/ActiveMQ.DLQ",
        "queue/$sys.mqtt.sessions",
        "queue/orders.dead-letter",
    )
    assert all(is_idle(entity, 0.0) for entity in own)
    assert not any(is_idle(entity, 3.0) for entity in own)
    assert not is_idle("queue/orders", 0.0)


def test_lines_follow_the_readings_and_break_at_gaps(figures: dict[str, Any]) -> None:
    heap = next(trace for trace in figures["inside-memory"]["data"] if "heap" in trace["name"])
    read = curves()[BROKER, "memory/heap", "used"]
    points = dict(zip(heap["x"], heap["y"], strict=True))
    assert {x: y for x, y in points.items() if y is not None} == pytest.approx(dict(read))
    assert [x for x, y in points.items() if y is None] == [GAP_S[0]]
    process = figures["inside-cpu"]["data"][0]
    assert None not in process["y"]  # the other inspector had no gap
    gaps = [shape for shape in figures["inside-memory"]["layout"]["shapes"] if shape.get("name") == "gap"]
    assert [(gap["x0"], gap["x1"]) for gap in gaps] == [GAP_S]
    assert not [shape for shape in figures["inside-cpu"]["layout"]["shapes"] if shape.get("name") == "gap"]


def test_a_gap_is_shown_with_its_reason_as_text(section: str) -> None:
    assert f"{BROKER} got no readings from 6.2 s to 8.1 s: connection refused &lt;b&gt;" in section


def test_of_hundreds_of_queues_the_deepest_are_drawn_and_the_others_counted(
    section: str, figures: dict[str, Any]
) -> None:
    peaks = {
        entity: max(value for t, value in readings if t >= 2)
        for (_, entity, metric), readings in curves().items()
        if metric == "MessageCount"
    }
    deepest = sorted(peaks, key=lambda entity: (-peaks[entity], entity))[:6]
    assert [trace["name"] for trace in figures["inside-depth"]["data"]] == deepest
    assert f"The 6 with the highest peaks out of {QUEUES}." in section


def test_the_leak_is_the_first_row_and_no_metric_crowds_out_the_others(section: str) -> None:
    shown = rows(section)
    entity, metric, trend, first, last, mean, peak, slope, r2 = shown[0]
    assert (entity, metric, trend) == ("memory/heap", "used", "↗\N{NO-BREAK SPACE}rising")
    assert (first, last, peak) == ("460 MB", "745 MB", "745 MB")
    assert (slope, r2) == ("+30 MB/s", "1.00")
    assert mean.endswith(" MB")
    in_front = [row[1] for row in shown[:14]]
    assert {in_front.count(metric) for metric in ("MessageCount", "DeliveringCount")} == {4}
    assert {"cpu_cores", "rss_bytes", "ConnectionCount", "TotalMessagesAdded"} <= set(in_front)
    assert len(shown) == 30
    assert f"{len(curves()) - 30} more in" in section


def test_an_inspector_without_any_reading_is_reported(tmp_path: Path) -> None:
    run_dir = write_sample(tmp_path / "run", SAMPLES["passing"])
    folder = run_dir / TABLES_DIR / "reading_gaps"
    folder.mkdir()
    gap = {"source": BROKER, "start_ns": 4_001_000_000_000, "end_ns": None, "reason": "401 Unauthorized"}
    pq.write_table(pa.Table.from_pylist([gap]), folder / "part-0.parquet")
    page = render_report(run_dir)
    assert f"{BROKER} got no readings from 1.0 s to the end: 401 Unauthorized" in page
    assert "No poll succeeded" in page


def test_a_damaged_table_of_readings_is_refused_by_name(tmp_path: Path) -> None:
    run_dir = write_readings(write_sample(tmp_path / "run", SAMPLES["passing"]))
    (run_dir / TABLES_DIR / "readings" / "part-0.parquet").write_bytes(b"PAR1 no longer")
    with pytest.raises(ConfigError, match="analyse the run again"):
        render_report(run_dir)


def test_a_run_without_messages_shows_its_readings(tmp_path: Path) -> None:
    page = render_report(write_readings(write_sample(tmp_path / "run", SAMPLES["empty"])))
    assert 'data-chart="inside-memory"' in page
    assert 'data-chart="rate"' not in page
    assert len({str(figure["layout"]["xaxis"]["range"]) for figure in figures_of(page).values()}) == 1


@pytest.fixture(scope="module")
def opened(report: Path, chromium: Browser) -> Iterator[Page]:
    """The page in a browser; any error or console message fails the module."""
    troubles: list[str] = []
    page = chromium.new_page(viewport={"width": 1280, "height": 900})
    page.on("console", lambda message: troubles.append(message.text))
    page.on("pageerror", lambda error: troubles.append(str(error)))
    page.goto(report.as_uri())
    page.wait_for_selector("html[data-ready]")
    assert page.evaluate("document.querySelectorAll('.copies .js-plotly-plot').length") == 0  # drawn when unfolded
    page.evaluate("document.querySelector('.copies').open = true")
    page.wait_for_function("() => [...document.querySelectorAll('.copies .chart')].every((plot) => plot.layout)")
    yield page
    page.close()
    assert troubles == []


def ranges(page: Page) -> list[list[float]]:
    found: list[list[float]] = page.evaluate(
        """() => [...document.querySelectorAll("[data-chart]")]
          .filter((plot) => !["spectrum", "histogram"].includes(plot.dataset.chart))
          .map((plot) => plot.layout.xaxis.range)"""
    )
    return found


def test_zooming_one_chart_zooms_them_all_rate_and_latency_included(opened: Page) -> None:
    whole = ranges(opened)
    assert len(whole) == 2 + 2 + len(CHARTS)
    assert all(each == whole[0] for each in whole)
    opened.locator("[data-chart=inside-memory]").scroll_into_view_if_needed()
    plot = opened.locator("[data-chart=inside-memory] .nsewdrag").bounding_box()
    assert plot is not None
    y = plot["y"] + plot["height"] / 2
    opened.mouse.move(plot["x"] + plot["width"] * 0.25, y)
    opened.mouse.down()
    opened.mouse.move(plot["x"] + plot["width"] * 0.75, y, steps=4)
    opened.mouse.up()
    opened.wait_for_function("() => document.querySelector('[data-chart=rate]').layout.xaxis.range[0] > 0")
    opened.wait_for_function(
        """() => new Set([...document.querySelectorAll("[data-chart]")]
          .filter((plot) => !["spectrum", "histogram"].includes(plot.dataset.chart))
          .map((plot) => plot.layout.xaxis.range.join())).size === 1"""
    )
    near = ranges(opened)[0]
    assert near[1] - near[0] == pytest.approx((whole[0][1] - whole[0][0]) / 2, rel=0.05)


def test_the_same_second_is_at_the_same_position_in_all_charts_of_the_section(opened: Page) -> None:
    lefts = opened.evaluate(
        """() => [...document.querySelectorAll("#inside .nsewdrag")].map((plot) => {
          const box = plot.getBoundingClientRect(); return [Math.round(box.left), Math.round(box.width)]; })"""
    )
    assert len(lefts) == 2 + len(CHARTS)
    assert len({tuple(left) for left in lefts}) == 1


def test_a_queue_may_have_any_name(tmp_path: Path, chromium: Browser) -> None:
    evil = "queue/<img src=x onerror=alert(1)><a href='javascript:alert(2)'>%{x}</script>"
    run_dir = write_sample(tmp_path / "run", SAMPLES["passing"])
    reading = {"run": "r", "source": BROKER, "entity": evil, "t_ns": 4_003_000_000_000, "MessageCount": 7.0}
    numbers = dict.fromkeys(("first", "last", "min", "mean", "peak"), 7.0) | {"slope": None, "r2": None}
    summary = {"run": "r", "source": BROKER, "entity": evil, "metric": "MessageCount", "samples": 1} | numbers
    for name, row in (("readings", reading), ("reading_summary", summary)):
        folder = run_dir / TABLES_DIR / name
        folder.mkdir()
        pq.write_table(pa.Table.from_pylist([row]), folder / "part-0.parquet")
    page = chromium.new_page()
    dialogs: list[str] = []
    page.on("dialog", lambda dialog: (dialogs.append(dialog.message), dialog.dismiss()))
    page.goto(write_report(run_dir).as_uri())
    page.wait_for_selector("html[data-ready]")
    page.evaluate("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
    assert evil in page.locator("#inside table").inner_text()
    legend = page.locator("[data-chart=inside-depth] .legendtext").text_content()
    assert legend is not None
    assert legend.startswith("queue/<img src=x")
    assert page.locator("#inside img, #inside a").count() == 0
    assert dialogs == []
    page.close()
