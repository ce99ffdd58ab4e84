"""How is a node frozen?

SIGSTOP to every process of it. Its connections stay open and its kernel buffers fill, as with a long pause of a garbage
collector or a stopped virtual machine. SIGCONT undoes it.
"""

import contextlib
import os
import signal

from crescendo.faults import cures
from crescendo.faults.action import Cure, FaultAction, FaultNode, Length
from crescendo.faults.chosen_processes import ChosenProcesses, chosen_processes


class Pause(FaultAction[FaultNode, ChosenProcesses]):
    """Stops the processes of a node without ending them."""

    name = "pause"
    summary = "SIGSTOP to every process of the node, or `only` to some; SIGCONT after `for`"
    settings = ChosenProcesses
    length = Length.OPTIONAL

    def prepare(self, target: FaultNode, settings: ChosenProcesses) -> Cure:
        return Cure(f"{cures.__name__}:{cures.continue_processes.__name__}", {"token": target.token})

    def apply(self, target: FaultNode, settings: ChosenProcesses, cure: Cure | None) -> str:
        if settings.only is None:
            stop(target.main_process.pid)  # first, because finding its descendants takes some milliseconds
        for process in chosen_processes(target, settings):
            stop(process.pid)
        return ""


def stop(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGSTOP)


PAUSE = Pause()
