"""What does looking cost the system, and what does it cost ourselves?

Each system is started and left alone, then looked at every 5 s and every second, in one run. The CPU of its processes
without a look is what it needs anyway; the rest is the inspector's doing. A Java system compiles what it does often
and goes on doing so for hundreds of looks: the first are measured apart, many go before the rest, and what its compiler
threads still took in the end is said beside the whole.
"""

import contextlib
import tempfile
import time
from pathlib import Path

import psutil

from bench.engines import Off
from crescendo.inspectors.base import InspectionTarget
from crescendo.inspectors.registry import inspector_of
from crescendo.inspectors.watch import Watch
from crescendo.model.errors import ConfigError
from crescendo.processes.die_with_parent import die_with_parent
from crescendo.systems.instance import start
from crescendo.systems.registry import system_of

KINDS = ("rabbitmq", "mosquitto", "activemq", "artemis", "qpid-broker-j", "qpid-dispatch")
SECONDS = 40
FIRST_LOOKS = 4
EARLY_LOOKS = 1000
SETTLE_S = 12
PERIODS_S = (5, 1)
_STEP_S = 0.02


def _cpu_of(pid: int) -> float:
    root = psutil.Process(pid)
    times = [process.cpu_times() for process in (root, *root.children(recursive=True))]
    return sum(used.user + used.system for used in times)


def _compiling(pid: int) -> float:
    """CPU seconds of the threads in which Java compiles; 0 where there is no Java."""
    root = psutil.Process(pid)
    used_ns = 0
    for process in (root, *root.children(recursive=True)):
        for task in Path(f"/proc/{process.pid}/task").iterdir():
            with contextlib.suppress(OSError):  # a thread that is gone by now
                if (task / "comm").read_text().startswith(("C1 Compiler", "C2 Compiler")):
                    used_ns += int((task / "schedstat").read_text().split()[0])
    return used_ns / 1e9


def _watch(kind: str, target: InspectionTarget, every_s: float) -> tuple[float, int]:
    """Percent of a core that we used ourselves, and how often we looked."""
    watch = Watch(inspector_of(kind)(target), kind, int(every_s * 1e9), Off())
    watch.inspect_once(10)
    cpu_s, begun_ns = time.process_time(), time.monotonic_ns()
    while (now_ns := time.monotonic_ns()) - begun_ns < SECONDS * 10**9:
        watch.step(begun_ns, now_ns)
        time.sleep(_STEP_S)
    used_s = time.process_time() - cpu_s
    watch.close(1)
    assert watch.inspections, f"{kind}: not one look succeeded"
    return used_s / SECONDS * 100, watch.inspections


def _first_looks(kind: str, target: InspectionTarget, pid: int) -> float:
    """CPU seconds that each of the first looks costs the system; then it gets used to them."""
    inspector = inspector_of(kind)(target)
    before = _cpu_of(pid)
    for _ in range(FIRST_LOOKS):
        inspector.inspect()
    cost = (_cpu_of(pid) - before) / FIRST_LOOKS
    for _ in range(EARLY_LOOKS):
        inspector.inspect()
    inspector.close()
    time.sleep(SETTLE_S)  # what they made hot is still being compiled
    return cost


def _measure(kind: str, directory: Path) -> None:
    instance = start(system_of(kind), {}, directory=directory, on_fork=die_with_parent())
    try:
        time.sleep(SETTLE_S)  # a system that has just started is still busy with itself
        before = _cpu_of(instance.pid)
        time.sleep(SECONDS)
        idle = (_cpu_of(instance.pid) - before) / SECONDS * 100
        print(f"  {kind:<14} {idle:>7.2f} %", end="", flush=True)
        target = InspectionTarget(instance.endpoints, instance.pid)
        first = _first_looks(kind, target, instance.pid)
        print(f"   first looks {first * 1000:>4.0f} ms each", end="", flush=True)
        for every_s in PERIODS_S:
            before, compiled = _cpu_of(instance.pid), _compiling(instance.pid)
            own, _ = _watch(kind, target, every_s)
            whole = (_cpu_of(instance.pid) - before) / SECONDS * 100
            compiling = (_compiling(instance.pid) - compiled) / SECONDS * 100
            of_it = f" ({compiling:.2f} compiling)" if compiling > 0 else ""
            print(
                f"   every {every_s} s: system {whole - idle:>+6.2f} %{of_it}, inspector {own:>5.2f} %",
                end="",
                flush=True,
            )
        print()
        own, looks = _watch("process", target, 1)
        print(f"  {'':<14} {'':>9}   its process every 1 s: inspector {own:.2f} % ({looks} looks)", flush=True)
    finally:
        instance.stop()


def main() -> None:
    print(f"percent of a core over {SECONDS} s each; first column: the system when nobody looks")
    for kind in KINDS:
        with tempfile.TemporaryDirectory(prefix="crescendo-bench-") as scratch:
            try:
                _measure(kind, Path(scratch) / "instance")
            except ConfigError as err:
                print(f"  {kind:<14} not measured: {err}")


if __name__ == "__main__":
    main()
