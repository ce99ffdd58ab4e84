"""How is a node frozen?

SIGSTOP to every process of it. Its connections stay open and its kernel buffers fill, as with a long pause of a garbage
collector or a stopped virtual machine. SIGCONT undoes it.
"""

import contextlib
import os
import signal

import psutil

from crescendo.faults import cures
from crescendo.faults.action import Cure, FaultAction, FaultNode, Length, NoSettings
from crescendo.processes.ending import processes_with


class Pause(FaultAction[FaultNode, NoSettings]):
    """Stops the processes of a node without ending them."""

    name = "pause"
    summary = "SIGSTOP to every process of the node, SIGCONT after `for`"
    settings = NoSettings
    length = Length.OPTIONAL

    def prepare(self, target: FaultNode, settings: NoSettings) -> Cure:
        return Cure(f"{cures.__name__}:{cures.continue_processes.__name__}", {"token": target.token})

    def apply(self, target: FaultNode, settings: NoSettings, cure: Cure | None) -> str:
        stop(target.main_process.pid)  # first, because finding its descendants takes some milliseconds
        for process in processes_with(target.token):
            with contextlib.suppress(psutil.NoSuchProcess):
                stop(process.pid)
        return ""


def stop(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGSTOP)


PAUSE = Pause()
