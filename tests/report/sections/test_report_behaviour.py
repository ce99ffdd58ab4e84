"""Outages and steady state, backlog, jitter, tiers: the text of the sections, and their layout on a phone."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page

from behaviour_samples import EVIL, GAP_NS, START_NS, write_behaviour
from crescendo.model.errors import ConfigError
from crescendo.record.summary import TABLES_DIR
from crescendo.report.page import render_report, write_report
from crescendo.report.plots.time_axis import merged
from report_samples import ORIGIN_NS, RATE, SAMPLES, SECOND_NS, SENDERS, STALLED_SECOND, write_sample

SECTIONS = ["outages", "backlog", "jitter", "tiers"]


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_report(write_behaviour(write_sample(tmp_path_factory.mktemp("behaviour") / "run", SAMPLES["failing"])))


def rows(page: str, section: str, title: str) -> list[list[str]]:
    """The cells of one table."""
    found = re.search(rf'<section id="{section}".*?</section>', page, flags=re.DOTALL)
    assert found
    table = re.search(rf'aria-label="{title}">.*?<tbody>(.*?)</tbody>', found[0], flags=re.DOTALL)
    assert table
    cells = [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row, flags=re.DOTALL) for row in table[1].split("</tr>")]
    return [[re.sub(r"<[^>]+>", "", cell) for cell in row] for row in cells if row]


def test_a_run_without_these_tables_has_none_of_the_sections(tmp_path: Path) -> None:
    page = render_report(write_sample(tmp_path / "run", SAMPLES["passing"]))
    assert not [name for name in SECTIONS if f'id="{name}"' in page]


def test_each_section_appears_with_its_table(tmp_path: Path) -> None:
    for table, section in (
        ("steady_state", "outages"),
        ("backlog", "backlog"),
        ("jitter", "jitter"),
        ("spans", "tiers"),
    ):
        page = render_report(write_behaviour(write_sample(tmp_path / table, SAMPLES["passing"]), table))
        assert [name for name in SECTIONS if f'<section id="{name}"' in page] == [section]
        assert f'href="#{section}"' in page


def test_the_outage_is_shown_with_its_recovery_and_its_fault(report: Path) -> None:
    page = report.read_text()
    lead = "1 unexpected gap in deliveries, the longest 1 s at 6.0 s (queue://perf). Not steady in the measure phase: "
    assert f"{lead}backlog rising." in re.sub(r"</?abbr[^>]*>", "", page)
    assert rows(page, "outages", "Outages") == [
        ["queue://perf", "6.00 s", "1 s", "5,000 msg/s", "1 s", "5,002", "700 ms", "12,345 msg/s", "4,200", "34"]
    ]
    assert rows(page, "outages", "Faults and broken connections") == [
        ["fault", "agent-0", "6.00 s", "5,000", "4,000", "900 µs", "990 ms", "5,000", "1 s"]
    ]
    assert rows(page, "outages", "Steady state") == [
        ["rate", "steady", "5,000", "0/s", "+0.0 %", "0.860", "0 s"],
        ["p99 latency", "steady", "900 µs", "−1.2 µs/s", "−1.3 %", "0.420", "0 s"],
        ["backlog", "rising", "3", "+0.5/s", "+167.0 %", "0.001", "0 s"],
    ]


def test_the_backlog_is_drawn_second_by_second_and_the_outage_is_shaded_in_every_chart_over_time(report: Path) -> None:
    page = report.read_text()
    found = re.search(r'id="figures">(.*?)</script>', page)
    assert found
    figures = json.loads(found[1])
    figure = figures["backlog"]
    points = dict(zip(figure["data"][0]["x"], figure["data"][0]["y"], strict=True))
    assert points[STALLED_SECOND + 0.5] == SENDERS * RATE
    assert points[0.5] == 7
    for chart in ("rate", "latency", "backlog"):
        (outage,) = [shape for shape in figures[chart]["layout"]["shapes"] if shape.get("name") == "outage"]
        assert (outage["x0"], outage["x1"]) == pytest.approx(
            ((START_NS - ORIGIN_NS) / SECOND_NS, (START_NS + GAP_NS - ORIGIN_NS) / SECOND_NS)
        )
    law = "Little&#39;s law holds in the measure phase: on average 2.14 messages"
    assert law in re.sub(r"</?abbr[^>]*>", "", page)


def test_outages_too_near_to_be_seen_apart_are_drawn_as_one() -> None:
    assert merged([(5.0, 6.0), (1.0, 2.0), (1.5, 3.0), (6.05, 7.0)], 0.1) == [(1.0, 3.0), (5.0, 7.0)]


def test_jitter_lists_the_worst_receivers_first_and_counts_the_rest(report: Path) -> None:
    shown = rows(report.read_text(), "jitter", "Jitter by receiver")
    assert [row[0] for row in shown] == [str(number) for number in range(24, 4, -1)]
    assert shown[0][2] == "2.25 ms"
    assert "5 more in the tables of the run." in report.read_text()


def test_tiers_are_sorted_by_time_with_outcomes_below_their_action(report: Path) -> None:
    shown = rows(report.read_text(), "tiers", "Spans by action")
    assert [(row[0], row[1], row[3]) for row in shown] == [
        ("send", "all", "100.0 %"), ("send", "timeout", "0.8 %"), ("database", "all", "65.0 %"),
        ("queue wait", "all", "12.5 %"), (EVIL.replace("<", "&lt;").replace(">", "&gt;"), "all", "1.0 %"),
    ]  # fmt: skip


def test_a_damaged_table_is_refused_by_name(tmp_path: Path) -> None:
    run_dir = write_behaviour(write_sample(tmp_path / "run", SAMPLES["passing"]))
    (run_dir / TABLES_DIR / "spans" / "part-0.parquet").write_bytes(b"PAR1 no longer")
    with pytest.raises(ConfigError, match="spans: cannot be read, analyse the run again"):
        render_report(run_dir)


@pytest.fixture(scope="module", params=["light", "dark"])
def opened(request: pytest.FixtureRequest, report: Path, chromium: Browser) -> Iterator[Page]:
    """The page in a browser; any error, console message or dialog fails the module."""
    troubles: list[str] = []
    page = chromium.new_page(viewport={"width": 1280, "height": 900}, color_scheme=request.param)
    page.on("console", lambda message: troubles.append(message.text))
    page.on("pageerror", lambda error: troubles.append(str(error)))
    page.on("dialog", lambda dialog: (troubles.append(dialog.message), dialog.dismiss()))
    page.goto(report.as_uri())
    page.wait_for_selector("html[data-ready]")
    yield page
    page.close()
    assert troubles == []


def test_the_charts_are_drawn_and_the_page_fits_a_phone(opened: Page) -> None:
    drawn = opened.evaluate(
        """() => [document.querySelectorAll("#tiers .bars path").length,
          [...document.querySelectorAll("#backlog path.js-line")].filter((l) => l.getBBox().width > 100).length]"""
    )
    assert drawn == [4, 1]
    assert opened.locator("#tiers img").count() == 0
    opened.set_viewport_size({"width": 390, "height": 900})
    opened.wait_for_function(
        "() => document.querySelector('[data-chart=tiers] svg').getBoundingClientRect().right <= 390"
    )
    widths = opened.evaluate(
        "() => [document.documentElement.scrollWidth, "
        "Math.max(...[...document.querySelectorAll('section, .chart svg')].map((s) => s.getBoundingClientRect().right))"
        "]"
    )
    opened.set_viewport_size({"width": 1280, "height": 900})
    assert widths[0] == 390
    assert widths[1] <= 390
