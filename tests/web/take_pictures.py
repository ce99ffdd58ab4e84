"""Retakes the pictures of docs/web.md: python tests/web/take_pictures.py

The real server, a real run on MLMQ whose rate is changed while it runs, and planted nightly runs and a campaign, in
Chromium. Look at each of them before you commit it.
"""

import re
import sys
import tempfile
from pathlib import Path

TESTS = Path(__file__).parents[1]
sys.path[:0] = [str(TESTS / name) for name in ("", "web")]

from playwright.sync_api import Page, sync_playwright  # noqa: E402 - after the directories of the tests

from chromium_browser import CHROMIUM, QUIET  # noqa: E402
from crescendo.campaigns.ranked_factors import campaign_effects  # noqa: E402
from crescendo.record.campaign_effects import write_effects  # noqa: E402
from crescendo.record.campaign_journal import write_journal  # noqa: E402
from crescendo.report.campaign_page import write_campaign_page  # noqa: E402
from web_lab import WebLab, web_lab  # noqa: E402
from web_samples import planted_campaign, planted_run  # noqa: E402

DOCS = TESTS.parent / "docs"
DESK, PHONE = {"width": 1280, "height": 900}, {"width": 390, "height": 844}
NIGHTS = 16
RUN_MS = 240_000


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="crescendo-pictures-") as directory:
        runs = Path(directory) / "runs"
        _plant(runs)
        with web_lab(runs) as lab, sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=CHROMIUM, args=QUIET)
            page = browser.new_page(viewport=DESK)  # type: ignore[arg-type]
            page.set_default_timeout(RUN_MS)
            page.goto(lab.link)
            _take_a_run(page)
            for name, path in (
                ("experiments", "/experiments"),
                ("history", "/history?experiment=quick-amqp10"),
                ("campaign", "/campaigns/growth-campaign"),
                ("new-campaign", "/campaigns/new?experiment=quick-mlmq"),
            ):
                _open(page, lab, path)
                if name == "new-campaign":
                    page.locator("[name=factors]").fill("workload.rate: [250, 500]\nworkload.size: [256, 1KB]")
                    page.get_by_role("button", name="Plan").click()
                    page.locator("#planned", has_text="runs").wait_for()
                _take(page, name)
            browser.close()


def _plant(runs: Path) -> None:
    for number in range(NIGHTS):
        planted_run(runs / f"nightly-{number:02d}", number, 1.0 + number % 3 / 500 - 0.2 * (number >= NIGHTS / 2))
    journal = planted_campaign(runs / "growth-campaign")
    write_journal(runs / "growth-campaign", journal)
    write_effects(runs / "growth-campaign", campaign_effects(journal))
    write_campaign_page(runs / "growth-campaign")


def _take_a_run(page: Page) -> None:
    """Clone, run, watch in both themes and on a phone, then the report."""
    page.get_by_role("button", name="Clone quick/amqp10").click()
    page.wait_for_url("**/experiments/quick-amqp10")
    page.get_by_role("link", name="Experiments", exact=True).click()
    page.locator("details summary", has_text="quick").first.click()
    page.get_by_role("button", name="Clone quick/mlmq").click()
    page.wait_for_url("**/experiments/quick-mlmq")
    page.locator("[name=measure]").fill("30s")
    page.get_by_role("button", name="Save and run").click()
    page.wait_for_url("**/jobs/*")
    page.locator("#phase", has_text=re.compile(r"measure · 1\d")).wait_for()
    page.get_by_label("Rate of each sender").fill("400")
    page.get_by_role("button", name="Change", exact=True).click()
    page.locator("#phase", has_text=re.compile(r"measure · 2\d")).wait_for()
    _take(page, "live")
    page.locator("#theme").click()
    _take(page, "live-dark")
    page.locator("#theme").click()
    page.set_viewport_size(PHONE)  # type: ignore[arg-type]
    _take(page, "phone")
    page.set_viewport_size(DESK)  # type: ignore[arg-type]
    page.wait_for_url("**/runs/quick-mlmq-*")
    page.locator("#theme").click()
    page.frame_locator("#report").locator("html[data-theme=dark] #verdict").wait_for()
    _take(page, "run-dark")
    page.locator("#theme").click()


def _open(page: Page, lab: WebLab, path: str) -> None:
    page.goto(lab.origin + path, wait_until="networkidle")


def _take(page: Page, name: str) -> None:
    page.wait_for_timeout(800)  # charts are drawn a frame after they have their data
    page.screenshot(path=DOCS / f"web-{name}.png")


if __name__ == "__main__":
    main()
