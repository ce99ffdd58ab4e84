"""Reports of the sample runs, and a real browser to open them."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, sync_playwright

from browser_reader import Reader
from crescendo.report.page import write_report
from report_samples import SAMPLES, write_sample

CHROMIUM = "/usr/bin/chromium"
QUIET = [
    "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update",
    "--disable-sync", "--no-first-run",
]  # fmt: skip


@pytest.fixture(scope="session")
def reports(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """name of a sample -> its report"""
    folder = tmp_path_factory.mktemp("runs")
    return {name: write_report(write_sample(folder / name, sample)) for name, sample in SAMPLES.items()}


# Not session-scoped: while it is open, Playwright's event loop runs in the thread of the tests.
@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=QUIET)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def reader(chromium: Browser) -> Reader:
    return Reader(chromium)


@pytest.fixture
def open_report(reader: Reader) -> Iterator[Reader]:
    """Fails the test if a page logs anything, opens a dialog or requests anything but itself."""
    reader.troubles.clear()
    yield reader
    assert reader.troubles == []
