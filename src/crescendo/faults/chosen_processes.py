"""Which processes of a node does a fault hit?

All of them, or those whose command line contains a text: one broker of a group, the database below it. They are found
by the token of the node, so a text that fits other programs of the machine hits none of them.
"""

import contextlib
from typing import Annotated

import psutil
from msgspec import Meta, Struct

from crescendo.faults.action import FaultNode
from crescendo.model.errors import PeerError
from crescendo.processes.ending import processes_with


class ChosenProcesses(Struct, frozen=True, forbid_unknown_fields=True):
    """Some of the processes of a node."""

    only: Annotated[str, Meta(min_length=1, max_length=500)] | None = None


def chosen_processes(target: FaultNode, chosen: ChosenProcesses) -> list[psutil.Process]:
    """The processes that are alive now; PeerError if none fits."""
    found = []
    for process in processes_with(target.token):
        with contextlib.suppress(psutil.Error):
            if chosen.only is None or chosen.only in " ".join(process.cmdline()):
                found.append(process)
    if not found:
        raise PeerError(f"no process of {target.name} has {chosen.only!r} in its command line")
    return found
