"""How much CPU does an inspection cost the system, and how much does it cost the inspector?

Each system is started and left idle, then inspected every 5 s and every second, in one run. The CPU of its processes
without inspections is the baseline; the rest is caused by the inspector. A Java system keeps compiling hot code for
hundreds of inspections: the first ones are measured apart, many precede the rest, and the share of its compiler threads
is printed beside the total.
"""

import contextlib
import tempfile
import time
from pathlib import Path

import psutil

from bench.engines import NullSink
from crescendo.inspectors.base import InspectionTarget
from crescendo.inspectors.inspection_schedule import Watch
from crescendo.inspectors.registry import inspector_of
from crescendo.model.errors import ConfigError
from crescendo.processes.die_with_parent import die_with_parent
from crescendo.systems.instance import start
from crescendo.systems.registry import system_of

KINDS = ("rabbitmq", "mosquitto", "activemq", "artemis", "qpid-broker-j", "qpid-dispatch")
SECONDS = 40
FIRST_INSPECTIONS = 4
WARM_UP_INSPECTIONS = 1000
SETTLE_S = 12
PERIODS_S = (5, 1)
_STEP_S = 0.02


def _cpu_of(pid: int) -> float:
    root = psutil.Process(pid)
    times = [process.cpu_times() for process in (root, *root.children(recursive=True))]
    return sum(used.user + used.system for used in times)


def _compiling(pid: int) -> float:
    """CPU seconds of the Java compiler threads; 0 if there is no Java."""
    root = psutil.Process(pid)
    used_ns = 0
    for process in (root, *root.children(recursive=True)):
        for task in Path(f"/proc/{process.pid}/task").iterdir():
            with contextlib.suppress(OSError):  # the thread may have ended
                if (task / "comm").read_text().startswith(("C1 Compiler", "C2 Compiler")):
                    used_ns += int((task / "schedstat").read_text().split()[0])
    return used_ns / 1e9


def _watch(kind: str, target: InspectionTarget, every_s: float) -> tuple[float, int]:
    """Percent of a core that the inspector used, and the number of inspections."""
    watch = Watch(inspector_of(kind)(target), kind, int(every_s * 1e9), NullSink())
    watch.inspect_once(10)
    cpu_s, begun_ns = time.process_time(), time.monotonic_ns()
    while (now_ns := time.monotonic_ns()) - begun_ns < SECONDS * 10**9:
        watch.step(begun_ns, now_ns)
        time.sleep(_STEP_S)
    used_s = time.process_time() - cpu_s
    watch.close(1)
    assert watch.inspections, f"{kind}: not one inspection succeeded"
    return used_s / SECONDS * 100, watch.inspections


def _first_inspections(kind: str, target: InspectionTarget, pid: int) -> float:
    """CPU seconds that each of the first inspections costs the system; then warm it up with many more."""
    inspector = inspector_of(kind)(target)
    before = _cpu_of(pid)
    for _ in range(FIRST_INSPECTIONS):
        inspector.inspect()
    cost = (_cpu_of(pid) - before) / FIRST_INSPECTIONS
    for _ in range(WARM_UP_INSPECTIONS):
        inspector.inspect()
    inspector.close()
    time.sleep(SETTLE_S)  # hot code is still being compiled
    return cost


def _measure(kind: str, directory: Path) -> None:
    instance = start(system_of(kind), {}, directory=directory, on_fork=die_with_parent())
    try:
        time.sleep(SETTLE_S)  # a system that has just started is still busy
        before = _cpu_of(instance.pid)
        time.sleep(SECONDS)
        idle = (_cpu_of(instance.pid) - before) / SECONDS * 100
        print(f"  {kind:<14} {idle:>7.2f} %", end="", flush=True)
        target = InspectionTarget(instance.endpoints, instance.pid)
        first = _first_inspections(kind, target, instance.pid)
        print(f"   first inspections {first * 1000:>4.0f} ms each", end="", flush=True)
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
        own, inspections = _watch("process", target, 1)
        print(
            f"  {'':<14} {'':>9}   its process every 1 s: inspector {own:.2f} % ({inspections} inspections)", flush=True
        )
    finally:
        instance.stop()


def main() -> None:
    print(f"percent of a core over {SECONDS} s each; first column: the system without inspections")
    for kind in KINDS:
        with tempfile.TemporaryDirectory(prefix="crescendo-bench-") as scratch:
            try:
                _measure(kind, Path(scratch) / "instance")
            except ConfigError as err:
                print(f"  {kind:<14} not measured: {err}")


if __name__ == "__main__":
    main()
