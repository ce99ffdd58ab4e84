"""What does recording every message cost, in speed and in bytes?

The same unbounded load through the relay, with recording and without, in turns, because machines drift. The two
medians make the ratio.
"""

import shutil
import statistics
import tempfile
from pathlib import Path

from bench.engines import Effort, through
from crescendo.load.assignment import Quota
from crescendo.model.units import Size
from crescendo.model.workload import Group
from crescendo.record.reader import journalled_parts
from crescendo.run.processes import die_with_parent
from crescendo.systems.loopback import Loopback, Settings

SIZE = 256
TURNS = 5
SECONDS = 3
PACED_RATE = 5_000


def _once(group: Group, record: Path | None) -> Effort:
    relay = Loopback(Settings(), die_with_parent())
    try:
        sent, received = through(relay.url, group, Quota(_count(group), SECONDS * 10**9), record=record)
    finally:
        relay.stop()
    assert sent.messages == received.messages, f"{sent.messages:,} sent, {received.messages:,} received"
    return sent


def _count(group: Group) -> int:
    return int(group.rate * SECONDS) if group.rate else 2**62


def _octets(record: Path) -> int:
    return sum(part.octets for part in journalled_parts(record))


def main() -> None:
    scratch = Path(tempfile.mkdtemp(prefix="crescendo-bench-"))
    try:
        group = Group(size=Size(SIZE), rate=0)
        off: list[float] = []
        on: list[float] = []
        unbounded_octets = 0.0
        for turn in range(TURNS):
            off.append(_once(group, None).rate)
            record = scratch / str(turn)
            effort = _once(group, record)
            on.append(effort.rate)
            unbounded_octets = _octets(record) / effort.messages
        paced = Group(size=Size(SIZE), rate=PACED_RATE)
        effort = _once(paced, scratch / "paced")
        paced_octets = _octets(scratch / "paced") / effort.messages
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    without, with_it = statistics.median(off), statistics.median(on)
    print(f"{SIZE} B unsettled through the loopback relay, {TURNS} turns of {SECONDS} s each, medians")
    print(f"  recording off  {without:>12,.0f} msg/s   {', '.join(f'{rate:,.0f}' for rate in off)}")
    print(f"  recording on   {with_it:>12,.0f} msg/s   {', '.join(f'{rate:,.0f}' for rate in on)}")
    print(f"  on ÷ off = {with_it / without:.3f} ({1 - with_it / without:+.1%} slower)")
    print(f"  bytes a message, sent + settled + received: {unbounded_octets:.2f} unbounded, ", end="")
    print(f"{paced_octets:.2f} paced at {PACED_RATE:,} msg/s")


if __name__ == "__main__":
    main()
