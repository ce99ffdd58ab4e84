"""The verb `run` for an experiment with a search: try after try, then the highest sustainable rate in one line."""

from pathlib import Path

import msgspec
from rich.console import Console

from crescendo.cli.run import Interruption, perform_watched, write_page
from crescendo.cli.terminal import EXIT_CODES, Progress
from crescendo.model.experiment import Experiment
from crescendo.model.search import Answer
from crescendo.model.verdict import Outcome
from crescendo.record.manifest import State
from crescendo.run.analysis import Analyst
from crescendo.run.execute import new_run_dir
from crescendo.run.search import FINDINGS, SearchResult, SearchTrial, seek


def search(
    experiment: Experiment,
    command: list[str],
    out: Path,
    control_url: str | None,
    as_json: bool,
    master: str | None = None,
) -> int:
    interruption = Interruption()
    console = Console(stderr=as_json, highlight=False, markup=False, soft_wrap=True)
    with Analyst(master) as analyst:  # says at once when there is no Java, not after the first try
        directory = new_run_dir(out, f"{experiment.name}-search")

        def carry_out(probe: Experiment, into: Path) -> SearchTrial | None:
            if interruption.asked:
                return None
            performance = perform_watched(probe, command, into, control_url, analyst, interruption)
            if performance.state is State.INTERRUPTED:
                return None
            with Progress() as progress:
                summary = analyst.analyze(performance.run_dir, progress)
                progress("writing the report")
                write_page(performance.run_dir)
            return SearchTrial(performance.run_dir, summary)

        try:
            findings = seek(experiment, directory, carry_out, lambda line: console.print(f"  {line}"))
        finally:
            if not any(directory.iterdir()):
                directory.rmdir()  # the first try could not even start
        if as_json:
            print(msgspec.json.encode(findings).decode(), flush=True)
        else:
            print(search_line(findings), flush=True)
            print(f"tries   {directory / FINDINGS}", flush=True)
    return exit_code(findings.answer)


def search_line(findings: SearchResult) -> str:
    """The answer, its interval, and what it rests on, in one line."""
    answer = findings.answer
    if answer is None:
        return "SEARCH unknown · it has not ended"
    parts = [f"SEARCH {_headline(answer)}"]
    invalid = sum(tried.outcome is Outcome.INVALID for tried in findings.tries)
    parts.append(f"confirmed by {findings.confirm}" if answer.complete else answer.reason)
    parts.append(f"{len(findings.tries)} tries" + (f", {invalid} of them invalid" if invalid else ""))
    parts.append("limits " + ", ".join(f"{metric} {limit}" for metric, limit in findings.limits.items()))
    return " · ".join(parts)


def exit_code(answer: Answer | None) -> int:
    """0 when there is a rate, 1 when not even the lowest will do, 3 when we cannot say."""
    if answer is None or not answer.complete:
        return EXIT_CODES[Outcome.INVALID]
    return EXIT_CODES[Outcome.FAIL if answer.rate is None else Outcome.PASS]


def _headline(answer: Answer) -> str:
    low, high = answer.rate, answer.above
    if not answer.complete:
        known = [f"{low:,.0f} msg/s passes" if low else "", f"{high:,.0f} msg/s fails" if high else ""]
        return f"unknown ({', '.join(filter(None, known)) or 'nothing is confirmed'})"
    if low is None:
        return f"under {high:,.0f} msg/s: {answer.reason}"
    if high is None:
        return f"at least {low:,.0f} msg/s: {answer.reason}"
    return f"{low:,.0f} msg/s sustainable · between {low:,.0f} and {high:,.0f}"
