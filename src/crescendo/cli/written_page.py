"""What is said about a page that was written, and its PDF?"""

from pathlib import Path
from typing import Annotated

import typer

Pdf = Annotated[bool, typer.Option("--pdf", help="Also print the page to a PDF, with Chromium.")]


def check_browser(pdf: bool) -> None:
    """ConfigError if a PDF is wanted and nothing can print it: before the work, not after it."""
    if pdf:
        from crescendo.report.pdf import find_browser

        find_browser()


def show_page(page: Path, *, pdf: bool, quiet: bool = False) -> None:
    """Print where the page is, and print it to a PDF beside it if that is wanted. quiet: say nothing."""
    lines = [f"report  {page}"]
    if pdf:
        from crescendo.report.pdf import write_pdf

        lines.append(f"pdf     {write_pdf(page)}")
    if not quiet:
        print("\n".join(lines))
