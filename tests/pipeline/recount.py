"""What should the tables of a recording hold? Recomputed from its rows with NumPy, one message at a time.

Uses nothing of the pipeline. Gives exact values; the caller allows for the width of a bucket.
"""

from collections import defaultdict
from typing import Any

import numpy as np

from crescendo.record.schema import Flag
from tiny_recordings import END_NS, MEASURE_NS, SECOND_NS, START_NS, Tiny

UNUSABLE = int(Flag.CORRUPT | Flag.STRAY)
Samples = dict[tuple[Any, ...], list[int]]


def phase_of(t_ns: int) -> str:
    if START_NS <= t_ns < MEASURE_NS:
        return "warmup"
    return "measure" if MEASURE_NS <= t_ns < END_NS else "outside"


def second_of(t_ns: int) -> int:
    return (t_ns - START_NS) // SECOND_NS


def delivered(tiny: Tiny) -> list[tuple[int, ...]]:
    return [row for row in tiny.received if not row[8] & UNUSABLE]


def latency_samples(tiny: Tiny, unbounded: bool) -> Samples:
    """(scope, phase, second, party, kind) -> all samples."""
    found: Samples = defaultdict(list)

    def note(kind: str, at_ns: int, value_ns: int, sender: int | None = None, receiver: int | None = None) -> None:
        phase = phase_of(at_ns)
        found["total", None, None, None, kind].append(value_ns)
        found["phase", phase, None, None, kind].append(value_ns)
        found["second", None, second_of(at_ns), None, kind].append(value_ns)
        if sender is not None:
            found["sender", phase, None, str(sender), kind].append(value_ns)
            found["destination", phase, None, destination(tiny), kind].append(value_ns)
        if receiver is not None:
            found["receiver", phase, None, str(receiver), kind].append(value_ns)

    for receiver, sender, _, intended_ns, sent_ns, received_ns, *_ in delivered(tiny):
        if not unbounded:
            note("response", intended_ns, received_ns - intended_ns, sender, receiver)
        note("transfer", intended_ns, received_ns - sent_ns, sender, receiver)
    for sender, _, attempt, intended_ns, sent_ns, _ in tiny.sent:
        if attempt == 1 and not unbounded:
            note("lateness", intended_ns, sent_ns - intended_ns, sender)
    for sender, first, last, sent_ns, settled_ns, _ in tiny.settled:
        for _ in range(first, last + 1):
            note("settle", sent_ns, settled_ns - sent_ns, sender)
    for t_ns, _, action, duration_ns, *_ in tiny.spans:
        if action in {"round trip", "one way"}:
            note(action, t_ns, duration_ns)
    return found


def destination(tiny: Tiny) -> str:
    return str(tiny.group["address"].partition("://")[2])


def span_samples(tiny: Tiny) -> Samples:
    """(phase, action, outcome or None for all) -> all durations; single outcomes only where an action has several."""
    found: Samples = defaultdict(list)
    for t_ns, _, action, duration_ns, _, outcome, _ in tiny.spans:
        for key in (None, outcome):
            found[phase_of(t_ns), action, key].append(duration_ns)
    outcomes: dict[tuple[str, str], set[str]] = defaultdict(set)
    for phase, action, outcome in found:
        if outcome is not None:
            outcomes[phase, action].add(outcome)
    return {key: values for key, values in found.items() if key[2] is None or len(outcomes[key[0], key[1]]) > 1}


def jitter_samples(tiny: Tiny) -> dict[int, list[int]]:
    """receiver -> jitter of each delivery after its first, in arrival order."""
    found: dict[int, list[int]] = {}
    for receiver in {row[0] for row in delivered(tiny)}:
        rows = sorted((row for row in delivered(tiny) if row[0] == receiver), key=lambda row: row[6])
        arrived, intended = np.array([[row[5], row[3]] for row in rows]).T
        steps = np.diff(arrived) - np.diff(intended)
        if steps.size:
            found[receiver] = steps.tolist()
    return found


def rfc3550(steps: list[int]) -> float:
    estimate = 0.0
    for step in steps:
        estimate += (abs(step) - estimate) / 16
    return estimate


def error_rows(tiny: Tiny) -> set[tuple[int, int, str, int, float]]:
    names = {1: "accepted", 2: "rejected", 3: "released", 4: "modified"}
    counts: dict[tuple[int, int], dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for sender, first, last, _, settled_ns, outcome in tiny.settled:
        counts[second_of(settled_ns), sender][names[outcome]] += last - first + 1
    return {
        (*key, name, messages, messages / sum(outcomes.values()))
        for key, outcomes in counts.items()
        for name, messages in outcomes.items()
        if name != "accepted"
    }


def backlog_rows(tiny: Tiny) -> dict[tuple[str, int], tuple[int, int, int]]:
    """(subscription, second) -> sent, received, backlog; from the first second with any activity."""
    topic = tiny.group["address"].startswith("topic")
    receivers = tiny.group["receivers"]
    names = [f"{tiny.group['address']}#main.{n}" for n in range(receivers)] if topic else [tiny.group["address"]]
    rows = {}
    for number, name in enumerate(names):
        due = [row[3] for row in tiny.sent if row[2] == 1]
        sent = [row[4] for row in tiny.sent if row[2] == 1]
        received = [row[5] for row in delivered(tiny) if not topic or row[0] == number]
        seconds = [second_of(t_ns) for t_ns in (*due, *sent, *received)]
        if not seconds:
            continue
        backlog = 0
        for second in range(min(seconds), max(seconds) + 1):
            received_now = sum(second_of(t_ns) == second for t_ns in received)
            sent_now = sum(second_of(t_ns) == second for t_ns in sent)
            backlog += sent_now - received_now
            rows[name, second] = sent_now, received_now, backlog
    return rows
