"""How does a load process get from its assignment to an engine whose JVM is connected and ready?

Starts the JVM, waits until every connection is attached, and returns the engine. A refusal by the system, in its own
words, ends the JVM and is raised. Sends nothing.
"""

import select
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from crescendo.load.assignment import LoadAssignment, quota_of
from crescendo.load.engine.engine_control import Control
from crescendo.load.jms.child_records import Closing
from crescendo.load.jms.connection_settings import connection_settings
from crescendo.load.jms.jms_receiver_engine import JmsReceiver, JmsReceiverEngine
from crescendo.load.jms.jms_sender_engine import JmsSender, JmsSenderEngine
from crescendo.load.jms.jvm_child import JvmChild
from crescendo.model.errors import PeerError
from crescendo.model.experiment import Experiment
from crescendo.model.workload import Group
from crescendo.record.writer import RowSink

READY_TIMEOUT_S = 30.0
_POLL_S = 0.05


def jms_engine(
    command: Sequence[str],
    role: str,
    directory: Path,
    assignment: LoadAssignment,
    experiment: Experiment,
    groups: dict[str, Group],
    log: RowSink,
    control: Control,
    keep_lease: Callable[[], None],
) -> JmsSenderEngine | JmsReceiverEngine:
    """The engine of this assignment, ready to run. Its JVM keeps its files in this directory."""
    members = [groups[slot.group].member(slot.index) for slot in assignment.places]
    settings = [
        connection_settings(role, group.target.url or assignment.urls[group.protocol], group, slot.id)
        for slot, group in zip(assignment.places, members, strict=True)
    ]
    child = JvmChild(command, role, assignment.tag, settings, directory)
    await_ready(child, keep_lease)
    connections = list(zip(assignment.places, members, strict=True))
    if role == "receiver":
        receivers = [JmsReceiver(slot.id, group) for slot, group in connections]
        return JmsReceiverEngine(receivers, child, log, control, tag=assignment.tag, limited=assignment.limited)
    senders = []
    for slot, group in connections:
        pacer = experiment.pacer_of(group, slot.id)
        quota = quota_of(pacer, experiment.phases)
        senders.append(JmsSender(slot.id, group, pacer, quota, seed=experiment.seed))
    return JmsSenderEngine(senders, child, log, control, drain_ns=experiment.phases.drain)


def await_ready(child: JvmChild, keep_lease: Callable[[], None] = lambda: None) -> None:
    """Wait until all its connections are attached; end it if one cannot be."""
    deadline_s = time.monotonic() + READY_TIMEOUT_S
    try:
        while len(child.ready) < child.connections:
            for found in child.read():
                if isinstance(found, Closing):
                    raise PeerError(f"the system refused: {found.reason}")
            if child.ended is not None:
                raise PeerError(child.ended)
            if time.monotonic() > deadline_s:
                waiting = child.connections - len(child.ready)
                raise PeerError(
                    f"{waiting} connection(s) of the JMS client were not ready within {READY_TIMEOUT_S:g} s"
                )
            keep_lease()
            select.select([child.fileno()], [child.stdin_fileno] if child.writing else [], [], _POLL_S)
    except PeerError:
        child.close()
        raise
