"""The report as a reader sees it: in Chromium, from a file, without a network."""

import itertools
import math
import shlex
from pathlib import Path

import msgspec
import pytest
from playwright.sync_api import Page

from browser_reader import CONTRASTS, Reader, page_widths
from crescendo.campaigns.ranked_factors import campaign_effects
from crescendo.record.manifest import read_manifest, write_manifest
from crescendo.record.summary import read_summary, write_summary
from crescendo.report.campaign_page import render_campaign
from crescendo.report.comparison_page import render_comparison
from crescendo.report.data.comparison_document import comparison_document
from crescendo.report.glossary import MEANINGS
from crescendo.report.page import write_report
from crescendo.report.search_page import render_search
from report_samples import SAMPLES, STALLED_SECOND, write_sample
from test_campaign_page import VALUES, journal_of
from test_comparison_page import WORSE
from test_search_page import FOUND

CHARTS_WITH_DATA = {"passing": 4, "failing": 4, "invalid": 4, "unbounded": 4, "empty": 0}


def _range(page: Page, chart: str) -> list[float]:
    return page.evaluate(f"() => document.querySelector('[data-chart={chart}]').layout.xaxis.range")


@pytest.mark.parametrize("name", SAMPLES)
def test_every_kind_of_run_draws_its_charts_without_network_requests(
    name: str, reports: dict[str, Path], open_report: Reader
) -> None:
    page = open_report(reports[name])
    drawn = page.evaluate(
        """() => [...document.querySelectorAll(".chart")].filter((chart) =>
            [...chart.querySelectorAll("path.js-line")].some((line) => line.getBBox().width > 100)).length"""
    )
    assert drawn == CHARTS_WITH_DATA[name]
    assert page.locator(".chart.broken").count() == 0


@pytest.mark.parametrize("name", SAMPLES)
def test_a_narrow_window_never_scrolls_sideways(name: str, reports: dict[str, Path], open_report: Reader) -> None:
    page = open_report(reports[name])
    page.set_viewport_size({"width": 390, "height": 900})
    whole, pushed, rightmost = page_widths(page)
    page.set_viewport_size({"width": 1280, "height": 900})
    assert (whole, pushed) == (390, 0)
    assert rightmost <= 390


def test_a_phone_never_scrolls_sideways(reports: dict[str, Path], open_report: Reader) -> None:
    whole, pushed, rightmost = page_widths(open_report(reports["failing"], width=390))
    assert (whole, pushed) == (390, 0)
    assert rightmost <= 390


@pytest.mark.parametrize(("name", "outcome"), [("passing", "pass"), ("failing", "fail"), ("invalid", "invalid")])
def test_the_verdict_is_the_first_thing_on_the_page(
    name: str, outcome: str, reports: dict[str, Path], open_report: Reader
) -> None:
    page = open_report(reports[name])
    first = page.locator("main section").first
    assert first.locator("h2").inner_text().lower().endswith(outcome)
    assert page.locator("header .subject").first.inner_text().startswith("The built-in relay 0.1.0: 5 senders → ")
    box = first.bounding_box()
    assert box is not None
    assert box["y"] + box["height"] < 900
    icons = {"passing": "✓", "failing": "✕", "invalid": "?"}
    assert first.locator(".icon").inner_text() == icons[name]


def test_the_theme_follows_the_system_and_the_button(reports: dict[str, Path], open_report: Reader) -> None:
    def colours(page: Page) -> tuple[str, str]:
        line = page.locator("[data-chart=rate] path.js-line").first
        return page.evaluate("getComputedStyle(document.body).backgroundColor"), line.evaluate("e => e.style.stroke")

    light, dark = open_report(reports["passing"]), open_report(reports["passing"], scheme="dark")
    in_light, in_dark = colours(light), colours(dark)
    assert in_light[0] != in_dark[0]
    assert in_light[1] != in_dark[1]
    light.get_by_role("button", name="Dark theme").click()
    light.wait_for_timeout(200)
    assert colours(light) == in_dark
    light.get_by_role("button", name="Light theme").click()
    dark.emulate_media(color_scheme="light")
    dark.wait_for_timeout(200)
    assert colours(light) == colours(dark) == in_light


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_all_text_reads_at_aa_contrast(scheme: str, reports: dict[str, Path], open_report: Reader) -> None:
    for name in ("passing", "failing", "invalid"):
        contrasts = open_report(reports[name], scheme=scheme).evaluate(CONTRASTS)
        assert len(contrasts) > 100
        assert [found for found in contrasts if found[0] < 4.5] == []


def test_a_word_explains_itself_to_the_mouse_and_to_the_keyboard(reports: dict[str, Path], open_report: Reader) -> None:
    page = open_report(reports["passing"])
    tip, word = page.locator("#tip"), page.locator("#verdict abbr", has_text="intended time").first
    assert not tip.is_visible()
    word.hover()
    assert tip.inner_text() == MEANINGS["intended time"]
    box = tip.bounding_box()
    assert box is not None
    assert 0 <= box["x"] <= 1280 - box["width"]
    page.mouse.move(0, 0)
    assert not tip.is_visible()
    word.focus()
    assert tip.is_visible()
    page.keyboard.press("Escape")
    assert not tip.is_visible()


def test_chart_buttons_are_small(reports: dict[str, Path], open_report: Reader) -> None:
    page = open_report(reports["passing"])
    page.locator("[data-chart=rate]").hover()
    buttons = "[...document.querySelectorAll('[data-chart=rate] .modebar-btn svg')]"
    sizes = page.evaluate(f"{buttons}.map((e) => e.getBoundingClientRect().height)")
    assert len(sizes) == 2
    assert max(sizes) <= 20


def _page_of_many_runs(name: str) -> str:
    if name == "campaign":
        journal = journal_of(VALUES)
        return render_campaign(journal, campaign_effects(journal))
    return render_search(FOUND) if name == "search" else render_comparison(comparison_document(WORSE))


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", ["comparison", "search", "campaign"])
def test_pages_of_many_runs_are_drawn_legible_and_fit_a_phone(
    name: str, scheme: str, tmp_path: Path, open_report: Reader
) -> None:
    path = tmp_path / f"{name}.html"
    path.write_text(_page_of_many_runs(name), encoding="utf-8")
    page = open_report(path, scheme=scheme)
    assert page.locator(".chart.broken").count() == 0
    assert page.locator(".chart .points path").count() >= (3 if name == "campaign" else 4)
    assert [found for found in page.evaluate(CONTRASTS) if found[0] < 4.5] == []
    page.set_viewport_size({"width": 390, "height": 900})
    whole, pushed, rightmost = page_widths(page)
    assert (whole, pushed) == (390, 0)
    assert rightmost <= 390
    page.close()


def test_headings_are_in_order_and_charts_have_descriptions(reports: dict[str, Path], open_report: Reader) -> None:
    page = open_report(reports["failing"])
    levels = page.evaluate("[...document.querySelectorAll('h1,h2,h3,h4')].map((h) => Number(h.tagName[1]))")
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after - before <= 1 for before, after in itertools.pairwise(levels))
    labels = page.evaluate("[...document.querySelectorAll('[role=img]')].map((e) => e.getAttribute('aria-label'))")
    assert len(labels) == 4
    assert all(len(label) > 30 for label in labels)
    links = page.evaluate("[...document.querySelectorAll('nav a')].map((a) => !!document.querySelector(a.hash))")
    assert len(links) >= 10
    assert all(links)


def test_zooming_one_chart_over_time_zooms_the_other(reports: dict[str, Path], open_report: Reader) -> None:
    page = open_report(reports["failing"])
    whole = _range(page, "latency")
    for dragged, other in (("rate", "latency"), ("latency", "rate")):
        page.locator(f"[data-chart={dragged}]").scroll_into_view_if_needed()
        plot = page.locator(f"[data-chart={dragged}] .nsewdrag").bounding_box()
        assert plot is not None
        y = plot["y"] + plot["height"] / 2
        page.mouse.move(plot["x"] + plot["width"] * 0.4, y)
        page.mouse.down()
        page.mouse.move(plot["x"] + plot["width"] * 0.6, y, steps=4)
        page.mouse.up()
        page.wait_for_timeout(500)
        near = _range(page, dragged)
        assert near[1] - near[0] == pytest.approx((whole[1] - whole[0]) * 0.2, rel=0.05)
        assert _range(page, other) == near
        page.mouse.dblclick(plot["x"] + plot["width"] / 2, y)
        page.wait_for_timeout(800)
        assert _range(page, dragged) == _range(page, other) == whole


def test_a_stall_shows_as_no_arrivals_and_a_second_of_latency(reports: dict[str, Path], open_report: Reader) -> None:
    page = open_report(reports["failing"])
    read = "(name) => document.querySelector(`[data-chart=${name}]`).data.map((t) => [t.name, t.y])"
    rates, latency = dict(page.evaluate(read, "rate")), dict(page.evaluate(read, "latency"))
    assert rates["sent"][STALLED_SECOND] == 5_000
    assert rates["received"][STALLED_SECOND - 1 : STALLED_SECOND + 2] == [5_000, 0, 10_000]
    assert latency["p50"][STALLED_SECOND] == pytest.approx(0.5, rel=0.02)
    assert latency["max"][STALLED_SECOND] == pytest.approx(1.0, rel=0.02)
    assert latency["max"][STALLED_SECOND + 1] < 0.02


def test_the_percentile_axis_counts_nines(reports: dict[str, Path], open_report: Reader) -> None:
    page = open_report(reports["passing"])
    axis = page.evaluate("document.querySelector('[data-chart=spectrum]').layout.xaxis")
    assert axis["ticktext"] == ["50", "90", "99", "99.9"]
    assert axis["tickvals"] == pytest.approx([math.log10(2), 1, 2, 3])


def test_the_copied_command_is_the_one_that_was_run(reports: dict[str, Path], open_report: Reader) -> None:
    page = open_report(reports["passing"])
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.get_by_role("button", name="Copy").click()
    page.get_by_role("button", name="Copied").wait_for()
    copied = page.evaluate("navigator.clipboard.readText()")
    assert shlex.split(copied) == read_manifest(reports["passing"].parent).command


def test_printing_uses_the_light_theme_and_expands_details(reports: dict[str, Path], open_report: Reader) -> None:
    page = open_report(reports["failing"], scheme="dark")
    page.evaluate("document.querySelectorAll('details').forEach((each) => { each.open = false; })")
    state = "[document.documentElement.dataset.theme, document.querySelectorAll('details:not([open])').length]"
    before = page.evaluate(state)
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.evaluate(state) == ["light", 0]
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert page.evaluate(state) == before
    assert before[0] == "dark"
    assert before[1] > 0


def test_names_from_a_recording_are_text_and_never_markup(tmp_path: Path, open_report: Reader) -> None:
    evil = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\"'{{ 7*7 }}"
    run_dir = write_sample(tmp_path / "run", SAMPLES["failing"])
    manifest, summary = read_manifest(run_dir), read_summary(run_dir)
    replace = msgspec.structs.replace
    document = manifest.experiment | {"name": evil}
    document["workload"] = [document["workload"][0] | {"address": evil}]
    write_manifest(
        run_dir,
        replace(
            manifest,
            experiment=document,
            command=[*manifest.command, evil],
            host={evil: evil},
            peers=[replace(peer, id=evil, reason=evil) for peer in manifest.peers],
            connections=[replace(item, peer=evil, address=evil) for item in manifest.connections],
            phases=[replace(phase, name=evil) if phase.name == "drain" else phase for phase in manifest.phases],
        ),
    )
    check = replace(summary.verdict.checks[0], reasons=[evil])
    verdict = replace(summary.verdict, checks=[check, *summary.verdict.checks[1:]])
    validity = [replace(item, detail=evil) for item in summary.validity]
    write_summary(run_dir, replace(summary, run=evil, verdict=verdict, validity=validity))
    page = open_report(write_report(run_dir))
    assert page.locator("h1").inner_text() == evil
    assert page.locator("img[src=x]").count() == 0
    assert evil in page.locator("#validity").inner_text()
    assert evil in page.title()
