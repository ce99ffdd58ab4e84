"""How is a node restarted, stopped for a time, or killed?

In order with SIGTERM, or at once with SIGKILL, together with everything that it started. It starts again with its data
and on its ports. When the run ends meanwhile it stays down, because the run would only stop it again.
"""

import contextlib

import psutil

from crescendo.faults.action import Cure, FaultAction, FaultNode, Length, NoSettings
from crescendo.faults.chosen_processes import ChosenProcesses, chosen_processes


class Restart(FaultAction[FaultNode, NoSettings]):
    """Shuts a node down in order and starts it at once."""

    name = "restart"
    summary = "shuts the node down in order, and starts it again at once"
    settings = NoSettings

    def apply(self, target: FaultNode, settings: NoSettings, cure: Cure | None) -> str:
        target.end()
        return ""

    def end(self, target: FaultNode, settings: NoSettings, cure: Cure | None, *, final: bool) -> None:
        if not final:
            target.start()


class Stop(Restart):
    """Shuts a node down in order and starts it after a while."""

    name = "stop"
    summary = "shuts the node down in order, and starts it after `for`"
    length = Length.REQUIRED


class Kill(FaultAction[FaultNode, ChosenProcesses]):
    """Kills a node, which starts again after a while or never; or some of its processes, which its own must restart."""

    name = "kill"
    summary = "SIGKILL to every process of the node, or `only` to some; the node starts again after `for`"
    settings = ChosenProcesses
    length = Length.OPTIONAL

    def is_instant(self, settings: ChosenProcesses) -> bool:
        return settings.only is not None

    def apply(self, target: FaultNode, settings: ChosenProcesses, cure: Cure | None) -> str:
        if settings.only is None:
            target.kill()
            return ""
        killed = chosen_processes(target, settings)
        for process in killed:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        return f"{len(killed)} of its processes"

    def end(self, target: FaultNode, settings: ChosenProcesses, cure: Cure | None, *, final: bool) -> None:
        if not final and settings.only is None:
            target.start()


RESTART, STOP, KILL = Restart(), Stop(), Kill()
