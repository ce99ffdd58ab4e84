"""How is a node restarted, stopped for a time, or killed?

In order with SIGTERM, or at once with SIGKILL, together with everything that it started. It starts again with its data
and on its ports. When the run ends meanwhile it stays down, because the run would only stop it again.
"""

from crescendo.faults.action import Cure, FaultAction, FaultNode, Length, NoSettings


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


class Kill(Restart):
    """Kills a node; it starts again after a while, or never."""

    name = "kill"
    summary = "SIGKILL to every process of the node; it starts again after `for`, without it never"
    length = Length.OPTIONAL

    def apply(self, target: FaultNode, settings: NoSettings, cure: Cure | None) -> str:
        target.kill()
        return ""


RESTART, STOP, KILL = Restart(), Stop(), Kill()
