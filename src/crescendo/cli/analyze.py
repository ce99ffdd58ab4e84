"""The verb `analyze`: tables and verdicts from recordings."""

from pathlib import Path

import msgspec

from crescendo.cli.terminal import EXIT_CODES, Progress, print_verdict
from crescendo.model.verdict import Outcome
from crescendo.record.manifest import read_manifest
from crescendo.run.analysis import Analyst

_WORST_FIRST = (Outcome.FAIL, Outcome.INVALID, Outcome.PASS)


def analyze(runs: list[Path], master: str | None, as_json: bool, full: bool = False) -> int:
    for run_dir in runs:
        read_manifest(run_dir)  # refuse all wrong paths before the first minute of work
    summaries = []
    with Progress() as progress, Analyst(master) as analyst:
        for run_dir in runs:
            summaries.append(analyst.analyze(run_dir, progress, full=full))
    if as_json:
        print(msgspec.json.encode(summaries).decode())
    else:
        for run_dir, summary in zip(runs, summaries, strict=True):
            print(run_dir)
            print_verdict(summary)
    outcomes = {summary.verdict.outcome for summary in summaries}
    return EXIT_CODES[next(outcome for outcome in _WORST_FIRST if outcome in outcomes)]
