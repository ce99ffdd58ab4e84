"""Reports of the sample runs, and a real browser to open them."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from browser_reader import Reader
from chromium_browser import chromium
from crescendo.report.page import write_report
from report_samples import SAMPLES, write_sample

__all__ = ["chromium", "open_report", "reader", "reports"]


@pytest.fixture(scope="session")
def reports(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """name of a sample -> its report"""
    folder = tmp_path_factory.mktemp("runs")
    return {name: write_report(write_sample(folder / name, sample)) for name, sample in SAMPLES.items()}


@pytest.fixture(scope="module")
def reader(chromium: Browser) -> Reader:
    return Reader(chromium)


@pytest.fixture
def open_report(reader: Reader) -> Iterator[Reader]:
    """Fails the test if a page logs anything, opens a dialog or requests anything but itself."""
    reader.troubles.clear()
    yield reader
    assert reader.troubles == []
