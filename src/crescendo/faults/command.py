"""How does a command of the user break a node, and another one repair it?

From a list of arguments, never by a shell, in a session of its own that ends with the run, with a time limit, and only
where the environment of the run allows it: a file that somebody sent must not run programs. What it prints goes to the
event of the fault, up to a limit.
"""

import contextlib
import os
import signal
import subprocess
from collections.abc import Mapping
from typing import Annotated

from msgspec import Meta, Struct

from crescendo.faults.action import Cure, FaultAction, FaultNode, Length
from crescendo.model.errors import PeerError
from crescendo.model.units import Duration
from crescendo.processes.child import close_pipes, launch_child
from crescendo.processes.die_with_parent import die_with_parent

ALLOWED = "CRESCENDO_ALLOW_COMMANDS"
NODE_VARIABLE, PID_VARIABLE = "CRESCENDO_NODE", "CRESCENDO_NODE_PID"
_OUTPUT_BYTES = 2000

Arguments = Annotated[list[str], Meta(min_length=1, max_length=1000)]


class CommandSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """The command that breaks the node, and the one that repairs it."""

    run: Arguments
    cure: Arguments | None = None
    timeout: Duration = Duration(10 * 10**9)


class RunCommand(FaultAction[FaultNode, CommandSettings]):
    """Runs a command, and another one to undo it."""

    name = "command"
    summary = f"runs `run`, a list of arguments, and `cure` after `for`; needs {ALLOWED}=1 in the environment"
    settings = CommandSettings
    length = Length.OPTIONAL

    def why_not(self, settings: CommandSettings) -> str:
        allowed = os.environ.get(ALLOWED) == "1"
        return "" if allowed else f"an experiment may run commands only if {ALLOWED}=1 is in the environment"

    def is_instant(self, settings: CommandSettings) -> bool:
        return settings.cure is None

    def prepare(self, target: FaultNode, settings: CommandSettings) -> Cure | None:
        if settings.cure is None:
            return None
        arguments = {"argv": settings.cure, "timeout_s": settings.timeout / 1e9, "variables": _variables(target)}
        return Cure(f"{__name__}:{run_command.__name__}", arguments)

    def apply(self, target: FaultNode, settings: CommandSettings, cure: Cure | None) -> str:
        return run_command(settings.run, settings.timeout / 1e9, _variables(target))


def _variables(target: FaultNode) -> dict[str, str]:
    return {NODE_VARIABLE: target.name, PID_VARIABLE: str(target.main_process.pid)}


def run_command(argv: list[str], timeout_s: float, variables: Mapping[str, str]) -> str:
    """Run it to its end and return the start of what it printed; PeerError if it fails or takes too long."""
    env = {"PATH": os.environ.get("PATH", os.defpath), "LANG": "C.UTF-8", **variables}
    try:
        child = launch_child(
            argv, on_fork=die_with_parent(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=env
        )  # fmt: skip
    except OSError as err:
        raise PeerError(f"{argv[0]} cannot be started: {err.strerror}") from err
    try:
        output, _ = child.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        raise PeerError(f"{argv[0]} did not end within {timeout_s:g} s") from None
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)  # what it left behind
        child.wait()
        close_pipes(child)
    printed = output[:_OUTPUT_BYTES].decode(errors="replace").strip()
    if child.returncode != 0:
        raise PeerError(f"{argv[0]} ended with exit code {child.returncode}: {printed}")
    return printed


COMMAND = RunCommand()
