"""Judge a condition that the checks of an experiment cannot express: was any second without messages?

    python examples/add_a_check.py runs/quick-amqp10-…

Prints the verdict of the run, extended by this check, and exits with its code: 0 pass, 1 fail, 3 invalid.
"""

import sys

import crescendo
from crescendo import Check, Outcome, Verdict

EXIT_CODES = {Outcome.PASS: 0, Outcome.FAIL: 1, Outcome.INVALID: 3}
SEVERITY = (Outcome.FAIL, Outcome.INVALID, Outcome.PASS)


def silent_seconds(recording: crescendo.RecordedRun) -> Check:
    """How many whole seconds of the measure phase no receiver got a message in."""
    phases = recording.manifest.phases
    measure = next(phase for phase in phases if phase.name == "measure")
    origin_ns = min(phase.start_ns for phase in phases)
    first, last = -(-(measure.start_ns - origin_ns) // 10**9), (measure.end_ns - origin_ns) // 10**9
    rows = recording.table("throughput").to_pylist()
    busy = {row["second"] for row in rows if row["role"] == "receiver" and row["messages"]}
    silent = [second for second in range(first, last) if second not in busy]
    outcome = Outcome.FAIL if silent else Outcome.PASS
    if recording.manifest.state is not crescendo.State.SEALED:
        outcome = Outcome.INVALID
    reasons = [f"second {second} has no messages" for second in silent]
    return Check("silent_seconds", "== 0", float(len(silent)), 0.0, outcome, reasons)


def judge(recording: crescendo.RecordedRun) -> Verdict:
    checks = [*recording.summary.verdict.checks, silent_seconds(recording)]
    outcomes = {recording.summary.verdict.outcome, *(check.outcome for check in checks)}
    worst = next(outcome for outcome in SEVERITY if outcome in outcomes)
    return Verdict(worst, checks, recording.summary.verdict.reasons)


def main(run: str) -> int:
    verdict = judge(crescendo.open_recording(run))
    for check in verdict.checks:
        print(f"{check.outcome:7} {check.metric} {check.value}, wanted {check.bound}")
    print(f"VERDICT {verdict.outcome}")
    return EXIT_CODES[verdict.outcome]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
