"""What does recording every message cost, in CPU, in speed and in bytes?

The same unpaced load through the relay, with recording and without, back to back in trials that alternate their order,
because machines drift: by half between trials, by little within one. The result is the median of the trials' ratios.
CPU is what the kernel charged to sender and receiver, their recording threads included, up to the last message.
"""

import shutil
import statistics
import tempfile
from pathlib import Path

from bench.engines import TrialResult, through
from bench.results import compare
from crescendo.load.assignment import Quota
from crescendo.model.payload import PayloadSize
from crescendo.model.workload import Group
from crescendo.processes.die_with_parent import die_with_parent
from crescendo.record.reader import journalled_parts
from crescendo.systems.instance import start
from crescendo.systems.kinds.loopback import LOOPBACK

SIZE = 256
TRIALS = 7
SECONDS = 2
PACED_RATE = 5_000
WANTED_CPU = 1.05


Pair = tuple[TrialResult, TrialResult]  # sender, receiver


def _once(group: Group, record: Path | None) -> Pair:
    scratch = Path(tempfile.mkdtemp(prefix="crescendo-bench-"))
    relay = start(LOOPBACK, {}, directory=scratch / "relay", on_fork=die_with_parent())
    try:
        sent, received = through(relay.url, group, Quota(_count(group), SECONDS * 10**9), record=record)
    finally:
        relay.stop()
        scratch.rmdir()
    assert sent.messages == received.messages, f"{sent.messages:,} sent, {received.messages:,} received"
    return sent, received


def _count(group: Group) -> int:
    return int(group.rate * SECONDS) if group.rate else 2**62


def _cost(pair: Pair) -> float:
    return pair[0].cpu_us + pair[1].cpu_us


def _octets(record: Path) -> int:
    return sum(part.octets for part in journalled_parts(record))


def main() -> None:
    scratch = Path(tempfile.mkdtemp(prefix="crescendo-bench-"))
    try:
        group = Group(size=PayloadSize.fixed(SIZE), rate=0)
        trials: list[tuple[Pair, Pair]] = []
        for trial in range(TRIALS):
            record = scratch / str(trial)
            if trial % 2:
                on = _once(group, record)
                trials.append((_once(group, None), on))
            else:
                trials.append((_once(group, None), _once(group, record)))
        unbounded_octets = _octets(record) / trials[-1][1][0].messages
        paced = Group(size=PayloadSize.fixed(SIZE), rate=PACED_RATE)
        result, _ = _once(paced, scratch / "paced")
        paced_octets = _octets(scratch / "paced") / result.messages
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    ratios = sorted(on[0].rate / off[0].rate for off, on in trials)
    off_rate, on_rate = (statistics.median(pair[0].rate for pair in side) for side in zip(*trials, strict=True))
    costs = [(_cost(on), _cost(off)) for off, on in trials]
    what, peer = f"AMQP 1.0 through the relay, {SIZE} B, recorded", "without a recording"
    cpu = compare("recording", what, "µs CPU per message", peer, costs, wanted=WANTED_CPU)
    rates = [(on[0].rate, off[0].rate) for off, on in trials]
    compare("recording", what, "msg/s", peer, rates, less_is_better=False)
    print(f"{SIZE} B unsettled through the loopback relay, {TRIALS} trials of {SECONDS} s each way")
    print(f"  recording off  {off_rate:>12,.0f} msg/s   median")
    print(f"  recording on   {on_rate:>12,.0f} msg/s   median")
    print(f"  on ÷ off, by trial: {', '.join(f'{ratio:.3f}' for ratio in ratios)}")
    median = statistics.median(ratios)
    print(f"  on ÷ off = {median:.3f}, so {1 - median:.1%} slower")
    print(f"  CPU per message, both sides: off {cpu.theirs:.3f} µs, on {cpu.ours:.3f} µs", end="; ")
    print(f"on ÷ off = {cpu.ratio:.3f} ({cpu.ratios[0]:.3f} to {cpu.ratios[-1]:.3f}), wanted ≤ {WANTED_CPU}")
    print(f"  bytes per message, sent + settled + received: {unbounded_octets:.2f} unbounded, ", end="")
    print(f"{paced_octets:.2f} paced at {PACED_RATE:,} msg/s")


if __name__ == "__main__":
    main()
