"""The verb `report`: one HTML page per run."""

from pathlib import Path

from crescendo.record.summary import read_summary
from crescendo.report.page import write_report


def report(runs: list[Path]) -> int:
    for run_dir in runs:
        read_summary(run_dir)
    for run_dir in runs:
        print(f"report  {write_report(run_dir)}")
    return 0
