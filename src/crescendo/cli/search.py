"""The verb `run` for an experiment with a search: one line per try, then the highest sustainable rate in one line."""

from pathlib import Path

import msgspec
from rich.console import Console

from crescendo.cli.run import Interruption, execute_observed, write_page
from crescendo.cli.terminal import EXIT_CODES, Progress
from crescendo.model.experiment import Experiment
from crescendo.model.search import SearchAnswer
from crescendo.model.verdict import Outcome
from crescendo.record.manifest import State
from crescendo.run.analysis import Analyst
from crescendo.run.execute import new_run_dir
from crescendo.run.search import SEARCH_FILE, SearchResult, SearchTrial, run_search


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
    with Analyst(master) as analyst:  # fails at once when there is no Java, not after the first try
        directory = new_run_dir(out, f"{experiment.name}-search")

        def run_trial(probe: Experiment, into: Path) -> SearchTrial | None:
            if interruption.asked:
                return None
            result = execute_observed(probe, command, into, control_url, analyst, interruption)
            if result.state is State.INTERRUPTED:
                return None
            with Progress() as progress:
                summary = analyst.analyze(result.run_dir, progress)
                progress("writing the report")
                write_page(result.run_dir)
            return SearchTrial(result.run_dir, summary)

        try:
            result = run_search(experiment, directory, run_trial, lambda line: console.print(f"  {line}"))
        finally:
            if not any(directory.iterdir()):
                directory.rmdir()  # the first try could not even start
        if as_json:
            print(msgspec.json.encode(result).decode(), flush=True)
        else:
            print(search_line(result), flush=True)
            print(f"tries   {directory / SEARCH_FILE}", flush=True)
    return exit_code(result.answer)


def search_line(result: SearchResult) -> str:
    """The answer, its interval, and its evidence, in one line."""
    answer = result.answer
    if answer is None:
        return "SEARCH unknown · still in progress"
    parts = [f"SEARCH {_headline(answer)}"]
    invalid = sum(tried.outcome is Outcome.INVALID for tried in result.tries)
    parts.append(f"confirmed by {result.confirm}" if answer.complete else answer.reason)
    parts.append(f"{len(result.tries)} tries" + (f", {invalid} of them invalid" if invalid else ""))
    parts.append("limits " + ", ".join(f"{metric} {limit}" for metric, limit in result.limits.items()))
    return " · ".join(parts)


def exit_code(answer: SearchAnswer | None) -> int:
    """0 when a rate passes, 1 when even the lowest fails, 3 when nothing can be said."""
    if answer is None or not answer.complete:
        return EXIT_CODES[Outcome.INVALID]
    return EXIT_CODES[Outcome.FAIL if answer.rate is None else Outcome.PASS]


def _headline(answer: SearchAnswer) -> str:
    low, high = answer.rate, answer.above
    if not answer.complete:
        known = [f"{low:,.0f} msg/s passes" if low else "", f"{high:,.0f} msg/s fails" if high else ""]
        return f"unknown ({', '.join(filter(None, known)) or 'nothing is confirmed'})"
    if low is None:
        return f"under {high:,.0f} msg/s: {answer.reason}"
    if high is None:
        return f"at least {low:,.0f} msg/s: {answer.reason}"
    return f"{low:,.0f} msg/s sustainable · between {low:,.0f} and {high:,.0f}"
