"""How does a fault of the timeline run a handler of an agent?

It asks the agent for a command and waits until that has ended; a code other than 0, or a limit that ended it, makes the
fault fail. With `cure`, another command undoes it. The agent knows that cure from the beginning, and runs it by itself
when it ends, or loses the run, before it was asked for it. The way of a request to the agent is not known here.
"""

from typing import Annotated, Any, Protocol

from msgspec import Meta, Struct, field

from crescendo.faults.action import Cure, FaultAction, Length

AGENT_TARGET = "agent"
"""The kind of target that runs handlers."""

_Command = Annotated[str, Meta(min_length=1, max_length=255)]


class FaultAgent(Protocol):
    """An agent of the run. Each thread that carries out a fault asks on a connection of its own."""

    def connect(self) -> None:
        """Be ready to ask without delay."""

    def run(self, command: str, parameters: dict[str, Any], cure: str = "") -> str:
        """Run a command to its end: what it printed first. PeerError if it fails, LostError if nobody answers.

        From its start on the agent owes the cure, until it has run it.
        """

    def disconnect(self) -> None: ...


class HandlerSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """The command that breaks something, and the one that repairs it."""

    command: _Command
    parameters: dict[str, Any] = field(default_factory=dict)
    cure: _Command | None = None


class RunHandler(FaultAction[FaultAgent, HandlerSettings]):
    """Runs a command of an agent, and another one to undo it."""

    name = "handler"
    summary = "`command` of the agent `on`, with `parameters`; and `cure`, another command, after `for`"
    settings = HandlerSettings
    acts_on = AGENT_TARGET
    length = Length.OPTIONAL

    def is_instant(self, settings: HandlerSettings) -> bool:
        return settings.cure is None

    def prepare(self, target: FaultAgent, settings: HandlerSettings) -> Cure | None:
        target.connect()
        return None  # only the agent can run it

    def apply(self, target: FaultAgent, settings: HandlerSettings, cure: Cure | None) -> str:
        return target.run(settings.command, settings.parameters, settings.cure or "")

    def end(self, target: FaultAgent, settings: HandlerSettings, cure: Cure | None, *, final: bool) -> None:
        try:
            if settings.cure is not None and not final:
                target.run(settings.cure, settings.parameters)
        finally:
            target.disconnect()


HANDLER = RunHandler()
