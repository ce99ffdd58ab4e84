"""Which faults are there? One line each.

An action's module is imported when the action is requested, so packages above this one can offer some too. Applies
nothing.
"""

from pkgutil import resolve_name
from typing import Any

from crescendo.faults.action import FaultAction
from crescendo.model.errors import ConfigError
from crescendo.model.suggestions import suggestion

ACTIONS: dict[str, str] = {
    "restart": "crescendo.faults.lifecycle:RESTART",
    "stop": "crescendo.faults.lifecycle:STOP",
    "kill": "crescendo.faults.lifecycle:KILL",
    "pause": "crescendo.faults.pause:PAUSE",
    "cpu": "crescendo.faults.resource_limits:CPU",
    "memory": "crescendo.faults.resource_limits:MEMORY",
    "descriptors": "crescendo.faults.resource_limits:DESCRIPTORS",
    "disk": "crescendo.faults.disk:DISK",
    "clock": "crescendo.faults.clock:CLOCK",
    "disconnect": "crescendo.faults.disconnect:DISCONNECT",
    "command": "crescendo.faults.command:COMMAND",
    "handler": "crescendo.agent.handler_fault:HANDLER",
    "cut": "crescendo.lab.link_faults:CUT",
    "impair": "crescendo.lab.link_faults:IMPAIR",
    "handoff": "crescendo.lab.link_faults:HANDOFF",
}
"""Name -> the module and the instance of FaultAction."""


def action_of(name: str) -> FaultAction[Any, Any]:
    if name not in ACTIONS:
        raise ConfigError(f"do: no action is called {name!r}; {suggestion(name, ACTIONS)}")
    action: FaultAction[Any, Any] = resolve_name(ACTIONS[name])
    return action
