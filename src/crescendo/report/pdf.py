"""How does a page become a PDF?

Chromium prints it, if there is one on this machine; the page opens its folds and takes the light theme for that. The
process has a profile of its own that is removed, and never outlives us. Needs no network.
"""

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from crescendo.model.errors import ConfigError, LostError
from crescendo.processes.child import ChildProcess, end_child, exits_within, launch_child
from crescendo.processes.die_with_parent import die_with_parent

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
PRINT_FRAGMENT = "#print"
"""The page prepares itself for paper when its address ends with this."""

_DRAWING_MS = 20_000
_TIMEOUT_S = 120.0


def find_browser() -> str:
    """The program that prints. Raises ConfigError if there is none."""
    for name in BROWSERS:
        if found := shutil.which(name):
            return found
    raise ConfigError("--pdf: needs Chromium, and none is installed; install it, or print the page in your browser")


def write_pdf(page: Path, browser: str | None = None) -> Path:
    """Print a page of ours next to it, and return the path of the PDF."""
    program = browser or find_browser()
    target = page.with_suffix(".pdf")
    with tempfile.TemporaryDirectory(prefix="crescendo-pdf-") as profile:
        printed = Path(profile) / "page.pdf"
        argv = [
            program, "--headless", "--disable-gpu", "--no-first-run", "--disable-background-networking",
            "--disable-component-update", "--disable-sync", "--no-pdf-header-footer", f"--user-data-dir={profile}",
            "--window-size=760,1100", f"--virtual-time-budget={_DRAWING_MS}", f"--print-to-pdf={printed}",
            *(["--no-sandbox"] if os.geteuid() == 0 else []),  # Chromium refuses its sandbox to root
            page.resolve().as_uri() + PRINT_FRAGMENT,
        ]  # fmt: skip
        child = launch_child(argv, on_fork=die_with_parent(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        _await(child, page)
        if not printed.is_file():
            raise LostError(f"{page}: {program} ended with code {child.returncode} and printed nothing")
        shutil.copyfile(printed, target)
    return target


def _await(child: ChildProcess, page: Path) -> None:
    try:
        if not exits_within(child, _TIMEOUT_S):
            raise LostError(f"{page}: the browser did not finish printing within {_TIMEOUT_S:.0f} s")
    finally:
        end_child(child, 2.0)
