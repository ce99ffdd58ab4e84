"""How is the highest sustainable rate found on a real system?

Each try is an ordinary run at one rate: performed, recorded, analysed, judged against the limits, and kept. What
follows from it is decided by `model.search`; this module only scales the rates, judges the backlog, and writes down
what was found after every try, so that an interrupted search has lost nothing. A run that could not be judged is an
invalid try.
"""

from collections.abc import Callable
from pathlib import Path

import msgspec
from msgspec import Struct

from crescendo.model.errors import ConfigError, LostError
from crescendo.model.experiment import Experiment
from crescendo.model.search import Answer, Search, Seeking, backlog_growth, begin, give_up, step
from crescendo.model.verdict import Bound, Outcome
from crescendo.record.manifest import read_manifest, write_atomically
from crescendo.record.summary import Summary
from crescendo.run.measured_throughput import measured_throughput

FINDINGS = "search.json"
Say = Callable[[str], None]


class Try(Struct, frozen=True):
    """One run of a search, and what it says about its rate."""

    rate: float
    outcome: Outcome
    run: str  # the directory of its recording, beside the findings; empty when there is none
    reasons: list[str]
    sustained: float | None = None
    backlog_growth: float | None = None  # messages a second


class SearchResult(Struct, frozen=True):
    """Everything a search has found out so far; the answer is None while it goes on."""

    name: str
    limits: dict[str, str]
    confirm: str
    answer: Answer | None
    tries: list[Try]


class SearchTrial(Struct, frozen=True):
    """A run that came to its end: its recording and its analysis."""

    run_dir: Path
    summary: Summary


CarryOut = Callable[[Experiment, Path], SearchTrial | None]
"""Run an experiment into a directory; None when a person stopped it."""


def seek(experiment: Experiment, directory: Path, carry_out: CarryOut, say: Say) -> SearchResult:
    """Search until there is an answer. Every try is kept in `directory`, with the findings beside them."""
    search = experiment.search
    if search is None:
        raise ConfigError(f"{experiment.name}: there is no search in this experiment")
    state: Seeking | Answer = begin(search)
    tries: list[Try] = []
    while isinstance(state, Seeking):
        tried = _try(experiment, search, state.rate, directory, carry_out)
        if tried is None:
            state = give_up(state, "interrupted")
            break
        tries.append(tried)
        state = step(state, tried.outcome)
        say(_told(len(tries), tried))
        _write(directory, experiment, search, None, tries)
    return _write(directory, experiment, search, state, tries)


def at_rate(experiment: Experiment, search: Search, rate: float) -> Experiment:
    """The same experiment at so many messages a second over all senders, judged against the limits of the search."""
    total = sum(group.senders * group.rate for group in experiment.workload)
    workload = [
        msgspec.structs.replace(group, rate=group.rate * rate / total) if group.senders else group
        for group in experiment.workload
    ]
    # A run needs a check to have a verdict; that anything arrived at all is the least there is.
    checks = search.bounds or {"rate": Bound("> 0")}
    return msgspec.structs.replace(experiment, workload=workload, checks=checks, search=None)


def judged(finished: SearchTrial, search: Search, rate: float) -> Try:
    """What one run says about its rate. Only a run whose evidence is sound can pass, or fail for its backlog."""
    summary = finished.summary
    outcome = summary.verdict.outcome
    reasons = [
        f"{check.metric}: {'; '.join(check.reasons) or f'wanted {check.bound}'}"
        for check in summary.verdict.checks
        if check.outcome is not Outcome.PASS
    ] + summary.verdict.reasons
    growth = _growth(finished, rate) if search.wants_steady else None
    if search.wants_steady and outcome is Outcome.PASS:
        if growth is None:
            outcome, reasons = Outcome.INVALID, ["backlog: too few seconds to tell"]
        elif growth > rate * search.tolerance:
            outcome, reasons = Outcome.FAIL, [f"backlog: it grows by {growth:,.0f} messages a second"]
    return Try(rate, outcome, finished.run_dir.name, reasons, summary.rate.sustained, growth)


def _try(experiment: Experiment, search: Search, rate: float, directory: Path, carry_out: CarryOut) -> Try | None:
    try:
        finished = carry_out(at_rate(experiment, search, rate), directory)
    except LostError as err:
        return Try(rate, Outcome.INVALID, "", [str(err)])
    return None if finished is None else judged(finished, search, rate)


def _growth(finished: SearchTrial, rate: float) -> float | None:
    """How fast what is due and has not arrived piles up, in messages that are owed once."""
    total = finished.summary.total
    fan_out = total.owed / total.sent if total.owed and total.sent else 1.0
    received = (
        measured_throughput(finished.run_dir, read_manifest(finished.run_dir), "receiver").messages.sum(axis=1)
        / fan_out
    )
    return backlog_growth([rate] * len(received), received.tolist())


def _told(number: int, tried: Try) -> str:
    why = f" ({'; '.join(tried.reasons)})" if tried.reasons else ""
    return f"try {number} at {tried.rate:,.0f} msg/s: {tried.outcome.value}{why}"


def _write(
    directory: Path, experiment: Experiment, search: Search, answer: Answer | None, tries: list[Try]
) -> SearchResult:
    limits = {metric: str(limit) for metric, limit in search.limits.items()}
    findings = SearchResult(experiment.name, limits, str(search.confirm), answer, tries)
    write_atomically(directory / FINDINGS, msgspec.json.format(msgspec.json.encode(findings), indent=1))
    return findings
