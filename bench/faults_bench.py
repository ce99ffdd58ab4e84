"""How late do faults begin? A hundred short pauses of a real relay: when each was due, and when its signal was sent."""

import tempfile
import time
from pathlib import Path

import numpy as np

from crescendo.faults.action import NODE
from crescendo.faults.executor import FAULT, FaultExecutor
from crescendo.faults.registry import action_of
from crescendo.model.experiment_file import experiment_from
from crescendo.model.fault_schedule import fault_schedule
from crescendo.processes.die_with_parent import die_with_parent
from crescendo.run.fault_control import NodeUnderFaults
from crescendo.systems.instance import start
from crescendo.systems.registry import system_of

COUNT = 100
EVERY_S = 0.1


def main() -> None:
    pauses = {"at": "1s", "do": "pause", "for": "5ms", "every": f"{int(EVERY_S * 1000)}ms", "times": COUNT}
    phases = {"warmup": 0, "measure": "1m"}
    schedule = fault_schedule(experiment_from({"phases": phases, "faults": [pauses]}, default_name="pauses"))
    pause = action_of("pause")
    with tempfile.TemporaryDirectory() as directory:
        system = start(system_of("loopback"), {}, directory=Path(directory) / "system", on_fork=die_with_parent())
        executor = FaultExecutor([(each, pause, pause.settings_of({})) for each in schedule])
        try:
            executor.aim({NODE: {"system": NodeUnderFaults("system", system)}})
            executor.arm(time.monotonic_ns())
            time.sleep(1 + COUNT * EVERY_S + 1)
            executor.close()
            late_ns = [
                event.t_ns - event.detail["planned_ns"] for event in executor.take_events() if event.kind == FAULT
            ]
        finally:
            system.stop()
            executor.end_threads()
    p50, p99, worst = np.percentile(late_ns, [50, 99, 100]) / 1e6
    print(f"{len(late_ns)} faults began late by: p50 {p50:.2f} ms, p99 {p99:.2f} ms, at most {worst:.2f} ms")


if __name__ == "__main__":
    main()
