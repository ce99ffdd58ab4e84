"""Pages over several runs in Chromium: an overlay with linked axes, a history with its change points, and a PDF."""

import re
from pathlib import Path

import numpy as np
import pytest

from browser_reader import CONTRASTS, Reader, page_widths
from crescendo.campaigns.ranked_factors import campaign_effects
from crescendo.cli.main import app
from crescendo.history.baseline_file import Baselines, ReviewedChange
from crescendo.history.regression_gate import baseline_of
from crescendo.history.run_history import HistoricRun
from crescendo.history.run_series import history_of
from crescendo.model.errors import ConfigError
from crescendo.model.verdict import Outcome
from crescendo.record.capacity_result import CapacityLevel, CapacityResult
from crescendo.report.campaign_page import render_campaign
from crescendo.report.capacity_page import render_capacity
from crescendo.report.data.history_document import HistoryDocument
from crescendo.report.data.model_document import ModelDocument, ModelRow, ModelStation
from crescendo.report.data.study_document import StudyDocument, StudyPartResult, StudyPoint
from crescendo.report.history_page import write_history_page
from crescendo.report.model_page import render_model
from crescendo.report.overlay_page import write_overlay
from crescendo.report.study_page import render_study
from report_samples import WARMUP_S
from test_campaign_page import journal_of


def _history(known: Baselines | None = None) -> HistoryDocument:
    random = np.random.default_rng(3)
    runs = [
        HistoricRun(
            f"night-{at:02d}", "<nightly>", "f" * 16, at,
            Outcome.INVALID if at == 12 else Outcome.FAIL if at == 4 else Outcome.PASS,
            {"rate": (1000 if at < 20 else 930) * (1 + 0.004 * random.normal())}, f"/runs/night-{at:02d}", "2 cores",
        )
        for at in range(30)
    ]  # fmt: skip
    known = known or Baselines().with_baseline(baseline_of(runs[:3], ""))
    return history_of(list(reversed(runs)), known, 0.05, place="runs", beside=Path("/"))


def _fits(page: object) -> None:
    whole, pushed, rightmost = page_widths(page)  # type: ignore[arg-type]
    assert (whole, pushed) == (390, 0)
    assert rightmost <= 390


def test_an_overlay_shows_five_runs_at_most_on_linked_axes(
    reports: dict[str, Path], tmp_path: Path, open_report: Reader
) -> None:
    runs = [reports[name].parent for name in ("passing", "failing", "invalid", "unbounded")]
    page = open_report(write_overlay(runs, tmp_path / "overlay.html"), scheme="dark")
    names = page.evaluate("document.querySelector('[data-chart=time-rate]').data.map((trace) => trace.name)")
    assert names == ["A", "B", "C", "D"]
    first = page.evaluate("document.querySelector('[data-chart=time-rate]').data[0].x[0]")
    assert first == 0.5 - WARMUP_S  # the measure phase of every run begins at 0
    page.evaluate("Plotly.relayout(document.querySelector('[data-chart=time-p99]'), {'xaxis.range': [2, 5]})")
    page.wait_for_timeout(300)
    for chart in ("time-rate", "time-p50", "time-p99"):
        assert page.evaluate(f"document.querySelector('[data-chart={chart}]').layout.xaxis.range") == [2, 5]
    link = page.locator("#verdict a").first.get_attribute("href") or ""
    assert (tmp_path / link).resolve() == reports["passing"].resolve()
    assert [found for found in page.evaluate(CONTRASTS) if found[0] < 4.5] == []
    page.set_viewport_size({"width": 390, "height": 900})
    _fits(page)
    page.close()


def test_an_overlay_refuses_one_run_and_six(reports: dict[str, Path], tmp_path: Path) -> None:
    run = reports["passing"].parent
    for runs in ([run], [run] * 6):
        with pytest.raises(ConfigError, match="2 to 5 runs"):
            write_overlay(runs, tmp_path / "overlay.html")


def test_a_history_shows_its_change_point_and_every_verdict(tmp_path: Path, open_report: Reader) -> None:
    page = open_report(write_history_page(_history(), tmp_path / "history.html"), scheme="dark")
    assert page.locator("#verdict h2").inner_text().endswith("1 change for the worse")
    row = page.locator("#series-0 table tbody tr").inner_text()
    assert row.startswith("night-20\trate")
    assert "worse" in row
    cells = page.locator(".cells li")
    assert cells.count() == 30
    assert [cells.nth(at).get_attribute("class") for at in (0, 4, 12, 20)] == ["pass base", "fail", "invalid", "pass"]
    drawn = page.evaluate("document.querySelector('[data-chart=trend-0-0]').data.map((trace) => trace.x.length)")
    assert sum(drawn[1:]) == 29  # an invalid run has no mark
    assert [found for found in page.evaluate(CONTRASTS) if found[0] < 4.5] == []
    page.set_viewport_size({"width": 390, "height": 900})
    _fits(page)
    page.close()


def _other_pages() -> dict[str, str]:
    row = ModelRow(
        "r", 4, 100.0, 5e6, 110.0, 4e6, 150.0, 3e6, 0.5, {"database": 0.4}, "database", 400.0, 1e5, 2e5, None
    )
    model = ModelDocument([ModelStation("database", 4e6, 2)], 1e7, "r", ["database.servers=16"], [row, row])
    levels = [CapacityLevel(str(at), float(at), 100.0 * at, 110.0 * at, True, "bracketed", "s") for at in (1, 2, 4)]
    # Sizes against periods, five repeats each: a map of means, distribution functions, interactions and residuals.
    factors = {"workload.size": [512, 1024, 3072], "workload.rate": [100, 10, 1]}
    values = {(at, repeat): 1e9 * (1 + at % 3 + 0.1 * repeat) for at in range(9) for repeat in range(5)}
    campaign = journal_of(values, factors=factors, design="full", repeat=5)
    point = StudyPoint("p99", "response_p99", "response_p99", 2e6, 3e6, 2.5e6, 3.5e6, 3, "another disk " * 12)
    parts = [StudyPartResult(f"part-{at}", "a/b.yml", "How long?", [point, point]) for at in range(3)]
    return {
        "model": render_model(model),
        "capacity": render_capacity(CapacityResult("x", "system.settings.brokers", {"lost": "== 0"}, levels)),
        "campaign": render_campaign(campaign, campaign_effects(campaign)),
        "study": render_study(StudyDocument("s", "A study", "A paper", "2 cores", ["a machine"], parts)),
    }


def test_pages_of_models_capacities_campaigns_and_studies_are_drawn_and_fit_a_phone(
    tmp_path: Path, open_report: Reader
) -> None:
    for name, text in _other_pages().items():
        path = tmp_path / f"{name}.html"
        path.write_text(text, encoding="utf-8")
        page = open_report(path, scheme="dark")
        assert page.locator(".chart.broken").count() == 0
        assert page.locator(".chart .points path").count() >= 3
        assert [found for found in page.evaluate(CONTRASTS) if found[0] < 4.5] == []
        page.set_viewport_size({"width": 390, "height": 900})
        _fits(page)
        page.close()


def test_a_dismissed_change_is_listed_and_no_alarm() -> None:
    runs = _history()
    change = ReviewedChange("f" * 16, "rate", "night-20", "new disks")
    (series,) = _history(Baselines().with_review(change, "dismissed")).series
    assert [(each.run, each.state, each.note) for each in series.metrics[0].changes] == [
        ("night-20", "dismissed", "new disks")
    ]
    assert runs.series[0].metrics[0].changes[0].change == pytest.approx(-0.07, abs=0.005)


def test_a_long_history_is_searched_in_windows() -> None:
    """1,500 runs with a drop in the middle and one near the end; every window sees its own part."""
    random = np.random.default_rng(5)
    levels = np.concatenate([np.full(740, 1000.0), np.full(700, 950.0), np.full(60, 900.0)])
    runs = [
        HistoricRun(f"r{at:04d}", "x", "f" * 16, at, Outcome.PASS, {"rate": float(level)})
        for at, level in enumerate(levels * np.exp(random.normal(0, 0.005, levels.size)))
    ]
    document = history_of(runs, Baselines(), 0.05, place="runs", beside=Path("/"))
    found = [each.position for each in document.series[0].metrics[0].changes]
    assert found == pytest.approx([740, 1440], abs=2)


def test_a_page_becomes_a_pdf_with_its_charts(
    reports: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    overlay = tmp_path / "overlay.html"
    runs = [str(reports[name].parent) for name in ("passing", "failing")]
    assert int(app(["report", *runs, "--overlay", str(overlay), "--pdf"], standalone_mode=False) or 0) == 0
    assert capsys.readouterr().out == f"report  {overlay}\npdf     {overlay.with_suffix('.pdf')}\n"
    printed = overlay.with_suffix(".pdf").read_bytes()
    assert printed.startswith(b"%PDF")
    assert len(re.findall(rb"/Type\s*/Page\b", printed)) >= 2
    assert len(printed) > 40_000  # without its charts it has less than half of that


def test_without_chromium_nothing_is_written(
    reports: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    runs = [str(reports[name].parent) for name in ("passing", "failing")]
    page = tmp_path / "page.html"
    for command in (["report", *runs, "--overlay"], ["compare", *runs, "--html"], ["history", runs[0], "--out"]):
        with pytest.raises(ConfigError, match="needs Chromium"):
            app([*command, str(page), "--pdf"], standalone_mode=False)
    assert not page.exists()
    with pytest.raises(ConfigError, match="prints the page of --html"):
        app(["compare", *runs, "--pdf"], standalone_mode=False)
