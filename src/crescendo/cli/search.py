"""How is the result of a search printed? The highest sustainable rate in one line, and the exit code."""

from crescendo.cli.terminal import EXIT_CODES
from crescendo.model.search import SearchAnswer
from crescendo.model.verdict import Outcome
from crescendo.record.search_result import SearchResult


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
