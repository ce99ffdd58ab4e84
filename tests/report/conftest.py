"""Reports of the sample runs, and a real browser to open them."""

from pathlib import Path

import pytest

from chromium_browser import chromium
from crescendo.report.page import write_report
from report_samples import SAMPLES, write_sample

__all__ = ["chromium", "reports"]


@pytest.fixture(scope="session")
def reports(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """name of a sample -> its report"""
    folder = tmp_path_factory.mktemp("runs")
    return {name: write_report(write_sample(folder / name, sample)) for name, sample in SAMPLES.items()}
