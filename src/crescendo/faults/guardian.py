"""Who undoes a fault when the process that caused it was killed?

This program, in a session of its own. It reads on its standard input which cures are owed, and which no longer. When
its input ends without that line, its owner has died: it carries out what is owed, the latest first, and exits. Causes
no fault itself, and signals that end others do not end it.
"""

import signal
import sys
from typing import IO

import msgspec

from crescendo.faults.action import Cure
from crescendo.faults.control_groups import remove_abandoned
from crescendo.faults.loop_disk import remove_abandoned_disks

NOTHING_OWED = -1
"""The number of a line that says that nothing is owed any more."""


class GuardLine(msgspec.Struct, frozen=True):
    """One line of the input: a cure that is owed from now on, or, without a cure, one that is not any more."""

    number: int
    cure: Cure | None = None


def main() -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    print("ready", flush=True)
    owed = read_owed(sys.stdin.buffer)
    if owed is not None:
        sys.exit(carry_out(owed))


def read_owed(lines: IO[bytes]) -> list[Cure] | None:
    """What is owed when the input ends, the latest first; None if its owner says that nothing is."""
    owed: dict[int, Cure] = {}
    for line in lines:
        if not line.endswith(b"\n"):
            break  # its writer was killed while it wrote, so the fault has not begun
        entry = msgspec.json.decode(line, type=GuardLine)
        if entry.number == NOTHING_OWED:
            return None
        if entry.cure is None:
            owed.pop(entry.number, None)
        else:
            owed[entry.number] = entry.cure
    return list(reversed(owed.values()))


def carry_out(owed: list[Cure]) -> int:
    """Carry out every cure; the exit code says how many failed."""
    failed = 0
    for cure in owed:
        try:
            cure.carry_out()
        except Exception as err:  # whatever it is, the others are still owed
            print(f"{cure.function}: {err}", file=sys.stderr)
            failed += 1
    remove_abandoned()
    remove_abandoned_disks()
    return failed


if __name__ == "__main__":
    main()
