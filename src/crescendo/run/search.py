"""How is the highest sustainable rate found on a real system?

Each try is an ordinary run at one rate: executed, recorded, analysed, judged against the limits, and kept.
`model.search` decides what follows from it; this module only scales the rates, judges the backlog, and writes the
result after every try, so that an interrupted search loses nothing. A run that cannot be judged is an invalid try.
"""

from collections.abc import Callable
from pathlib import Path

import msgspec
from msgspec import Struct

from crescendo.model.errors import ConfigError, LostError
from crescendo.model.experiment import Experiment
from crescendo.model.metrics import RESPONSE, TRANSFER, format_value
from crescendo.model.own_delay import explains
from crescendo.model.search import (
    Search,
    SearchAnswer,
    SearchState,
    backlog_growth,
    begin,
    end_early,
    growth_by_delay,
    step,
)
from crescendo.model.verdict import Bound, Check, Outcome
from crescendo.record.manifest import read_manifest
from crescendo.record.search_result import SearchResult, Try, write_search_result
from crescendo.record.summary import Summary
from crescendo.record.timeline import RunTimeline
from crescendo.run.measured_throughput import messages_per_second

Report = Callable[[str], None]


class SearchTrial(Struct, frozen=True):
    """A completed run: its recording and its analysis."""

    run_dir: Path
    summary: Summary


RunTrial = Callable[[Experiment, Path], SearchTrial | None]
"""Run an experiment into a directory; None when the user stopped it."""


def run_search(experiment: Experiment, directory: Path, run_trial: RunTrial, report: Report) -> SearchResult:
    """Search until there is an answer. Every try is kept in `directory`, together with the result file."""
    search = experiment.search
    if search is None:
        raise ConfigError(f"{experiment.name}: this experiment has no search")
    state: SearchState | SearchAnswer = begin(search)
    tries: list[Try] = []
    while isinstance(state, SearchState):
        tried = _try(experiment, search, state.rate, directory, run_trial)
        if tried is None:
            state = end_early(state, "interrupted")
            break
        tries.append(tried)
        state = step(state, tried.outcome)
        report(_describe(len(tries), tried))
        _write(directory, experiment, search, None, tries)
    return _write(directory, experiment, search, state, tries)


def at_rate(experiment: Experiment, search: Search, rate: float) -> Experiment:
    """The same experiment at `rate` messages per second over all senders, judged against the limits of the search."""
    total = sum(group.senders * group.rate for group in experiment.workload)
    workload = [
        msgspec.structs.replace(group, rate=group.rate * rate / total) if group.senders else group
        for group in experiment.workload
    ]
    # A run needs a check to have a verdict; that anything arrived at all is the weakest one.
    checks = search.bounds or {"rate": Bound("> 0")}
    return msgspec.structs.replace(experiment, workload=workload, checks=checks, search=None)


def judge_trial(trial: SearchTrial, search: Search, rate: float) -> Try:
    """The outcome of one run for its rate. Only a run with sound evidence can pass, or fail because of its backlog."""
    summary = trial.summary
    outcome = summary.verdict.outcome
    reasons = [
        f"{check.metric}: {'; '.join(check.reasons) or _missed(check)}"
        for check in summary.verdict.checks
        if check.outcome is not Outcome.PASS
    ] + summary.verdict.reasons
    growth = _backlog_growth(trial, rate) if search.wants_steady else None
    if search.wants_steady and outcome is Outcome.PASS:
        if growth is None:
            outcome, reasons = Outcome.INVALID, ["backlog: too few seconds to judge"]
        elif growth > rate * search.tolerance:
            outcome, reasons = Outcome.FAIL, [f"backlog: it grows by {growth:,.0f} messages per second"]
            ours = _growth_by_own_delay(trial, rate)
            if explains(lambda grown: grown > rate * search.tolerance, growth, growth - ours):
                outcome = Outcome.INVALID
                reasons.append(f"own delay could explain {ours:,.0f} of them")
    latency = summary.latency_of(RESPONSE) or summary.latency_of(TRANSFER)
    return Try(
        rate,
        outcome,
        trial.run_dir.name,
        reasons,
        summary.rate.sustained,
        growth,
        "" if latency is None else latency.kind,
        {} if latency is None else latency.percentiles_ns,
    )


def _missed(check: Check) -> str:
    value = "not measured" if check.value is None else format_value(check.metric, check.value)
    return f"{value}, wanted {check.bound}"


def _try(experiment: Experiment, search: Search, rate: float, directory: Path, run_trial: RunTrial) -> Try | None:
    try:
        trial = run_trial(at_rate(experiment, search, rate), directory)
    except LostError as err:
        return Try(rate, Outcome.INVALID, "", [str(err)])
    return None if trial is None else judge_trial(trial, search, rate)


def _backlog_growth(trial: SearchTrial, rate: float) -> float | None:
    """How fast the backlog of due messages that have not arrived grows; a fanned-out message counts once."""
    total = trial.summary.total
    fan_out = total.owed / total.sent if total.owed and total.sent else 1.0
    received = messages_per_second(trial.run_dir, read_manifest(trial.run_dir), "receiver") / fan_out
    return backlog_growth([rate] * len(received), received.tolist())


def _growth_by_own_delay(trial: SearchTrial, rate: float) -> float:
    """How fast the backlog may have grown because of senders that were late and receivers that read late."""
    manifest = read_manifest(trial.run_dir)
    senders = [peer.statistics.own_delay_max_ns or 0.0 for peer in manifest.peers if peer.role == "sender"]
    receivers = [peer.statistics.read_delay_max_ns or 0.0 for peer in manifest.peers if peer.role == "receiver"]
    delay_s = (max(senders, default=0.0) + max(receivers, default=0.0)) / 1e9
    return growth_by_delay(rate, delay_s, len(RunTimeline.of(manifest.phases).whole_seconds))


def _describe(number: int, tried: Try) -> str:
    why = f" ({'; '.join(tried.reasons)})" if tried.reasons else ""
    return f"try {number} at {tried.rate:,.0f} msg/s: {tried.outcome.value}{why}"


def _write(
    directory: Path, experiment: Experiment, search: Search, answer: SearchAnswer | None, tries: list[Try]
) -> SearchResult:
    limits = {metric: str(limit) for metric, limit in search.limits.items()}
    result = SearchResult(experiment.name, limits, str(search.confirm), answer, tries)
    write_search_result(directory, result)
    return result
