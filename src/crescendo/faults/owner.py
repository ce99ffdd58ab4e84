"""Whose is a control group or a disk that was left behind?

Each is named after the process that made it, by pid and time of birth, so that the things of a process that has died
differ from those in use. Removes nothing.
"""

import os

from crescendo.processes.ref import ProcessRef, is_alive, process_ref


def owner_name() -> str:
    """This process, as a part of a name."""
    return f"{os.getpid()}-{_ticks(process_ref('', os.getpid()))}"


def owner_lives(name: str) -> bool:
    """Whether the process that `owner_name` named is alive."""
    pid, _, ticks = name.partition("-")
    if not pid.isdecimal():
        return False
    process = process_ref("", int(pid))
    return is_alive(process) and _ticks(process) == ticks


def _ticks(process: ProcessRef) -> str:
    """When it started, in ticks since the boot. The boot need not be named: what was left does not survive it."""
    return process.birth.rpartition(":")[2]
