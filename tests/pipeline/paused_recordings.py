"""Recordings of runs in which something stood still: the system, a sender of ours, or a receiver of ours.

A message is sent when it is due, or when the sender goes on; it leaves the system after a millisecond, or when the
system goes on; it is read when it is readable, or when the receiver goes on. What is recorded as own delay is true:
how much earlier the message would have been sent if our sender had never stood still. Knows nothing of the pipeline.
"""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tiny_recordings import ACCOUNTED, MEASURE_NS, MS, SECOND_NS, Tiny

RATE = 250
SECONDS = 4

Pause = tuple[float, float]  # from and to, in seconds of the measure phase
NEVER: Pause = (0.0, 0.0)


@dataclass
class Paused:
    """One sender at a fixed rate, one queue, one receiver."""

    system: Pause = NEVER
    sender: Pause = NEVER
    receiver: Pause = NEVER
    window: int | None = None  # messages that the system lets the sender have in flight
    tiny: Tiny = field(default_factory=lambda: Tiny(group={"rate": RATE, "senders": 1, "receivers": 1}))

    def write(self, run_dir: Path, **checks: Any) -> Path:
        self.add_to(self.tiny, 0)
        return write_accounted(self.tiny, run_dir, checks)

    def add_to(self, tiny: Tiny, number: int) -> None:
        """Add its messages, from the sender with this number to the receiver with the same."""
        on_time = _times(self.system, NEVER, self.receiver, self.window)
        for seq, (sent_ns, readable_ns, received_ns) in enumerate(
            _times(self.system, self.sender, self.receiver, self.window)
        ):
            intended_ns = _intended_ns(seq)
            tiny.send(number, seq, intended_ns, sent_ns - intended_ns)
            tiny.received.append((number, number, seq, intended_ns, sent_ns, received_ns, seq, 100, 0))
            own_ns = sent_ns - on_time[seq][0]
            if own_ns != sent_ns - intended_ns:
                tiny.own_delay.append((number, seq, seq, own_ns))
            if received_ns != readable_ns:
                tiny.read_delay.append((number, seq, seq, received_ns - readable_ns))
            tiny.accept(number, seq, seq, sent_ns, _after(readable_ns, self.sender))
        for role, (start, end) in (("sender", self.sender), ("receiver", self.receiver)):
            if end > start:
                stall = {"peer": f"{role}-{number}", "role": role, "from_ns": _at_ns(start)}
                stall["duration_ns"] = _at_ns(end) - _at_ns(start)
                tiny.events.append((_at_ns(end), f"{role}-{number}", "stall", json.dumps(stall)))


def write_groups(run_dir: Path, groups: dict[str, Paused], checks: dict[str, str]) -> Path:
    """One recording of these groups, each with a queue of its own, and with these checks of each group."""
    first, *others = (
        {"name": name, "rate": RATE, "senders": 1, "receivers": 1, "address": f"queue://{name}"} for name in groups
    )
    tiny = Tiny(group=first, more_groups=others, processes=len(groups))
    for number, paused in enumerate(groups.values()):
        paused.add_to(tiny, number)
    named = {f"{name}.{metric}": bound for name in groups for metric, bound in checks.items()}
    return write_accounted(tiny, run_dir, named)


def write_accounted(tiny: Tiny, run_dir: Path, checks: dict[str, Any]) -> Path:
    """Write a recording whose peers kept account of their own delay."""
    tiny.checks = checks
    tiny.statistics = {
        f"{role}-{number}": ACCOUNTED[f"{role}-0"]
        for role in ("sender", "receiver")
        for number in range(tiny.processes)
    }
    return tiny.write(run_dir)


def _intended_ns(seq: int) -> int:
    return MEASURE_NS + seq * SECOND_NS // RATE


def _times(system: Pause, sender: Pause, receiver: Pause, window: int | None) -> list[tuple[int, int, int]]:
    """When each message is sent, readable and received."""
    times: list[tuple[int, int, int]] = []
    for seq in range(RATE * SECONDS):
        sent_ns, readable_ns, _ = times[-1] if times else (0, 0, 0)
        freed_ns = times[seq - window][2] if window is not None and seq >= window else 0
        sent_ns = _after(max(_intended_ns(seq), sent_ns, freed_ns), sender)
        readable_ns = max(_after(sent_ns + MS, system), readable_ns)
        times.append((sent_ns, readable_ns, _after(readable_ns, receiver)))
    return times


def _after(t_ns: int, pause: Pause) -> int:
    start_ns, end_ns = map(_at_ns, pause)
    return end_ns if start_ns <= t_ns < end_ns else t_ns


def _at_ns(second: float) -> int:
    return MEASURE_NS + int(second * SECOND_NS)
