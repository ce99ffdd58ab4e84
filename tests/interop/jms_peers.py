"""The JMS clients of the vendors as senders and receivers of a test, each side in a JVM of its own."""

import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from crescendo.load.assignment import Quota
from crescendo.load.engine.receiver_engine import Receiver, ReceiverEngine
from crescendo.load.engine.sender import Sender
from crescendo.load.engine.sender_engine import SenderEngine
from crescendo.load.jms.connection_settings import connection_settings
from crescendo.load.jms.jms_engines import await_ready as await_jvm
from crescendo.load.jms.jms_receiver_engine import JmsReceiver, JmsReceiverEngine
from crescendo.load.jms.jms_sender_engine import JmsSender, JmsSenderEngine
from crescendo.load.jms.jvm_child import JvmChild
from crescendo.load.protocols.registry import driver_of
from crescendo.model.pacer import UNLIMITED, pacer_for
from crescendo.model.workload import Group
from crescendo.record.schema import Flag
from crescendo.systems.install.jms_clients import jms_command
from engine_threads import TAG, TIMEOUT_S, Control, Rows, await_ready

QUICK = "-XX:TieredStopAtLevel=1"
"""Compiling less shortens a JVM that lives for a second."""


class LedgerRows(Rows):
    """Also keeps the send times of both sides, and sizes and flags of what was received."""

    def __init__(self) -> None:
        super().__init__()
        self.sent_ns: dict[int, int] = {}
        self.stamped_ns: dict[int, int] = {}  # the send time that arrived with the message
        self.sizes: list[int] = []
        self.flags: list[int] = []

    def append(self, table: str, rows: int, *columns: Any) -> None:
        super().append(table, rows, *columns)
        every = [np.broadcast_to(np.asarray(column), rows).tolist() for column in columns]
        if table == "sent":
            self.sent_ns |= dict(zip(every[1], every[4], strict=True))
        elif table == "received":
            self.stamped_ns |= dict(zip(every[2], every[4], strict=True))
            self.sizes += every[7]
            self.flags += every[8]

    @property
    def redelivered(self) -> list[bool]:
        return [bool(flag & Flag.REDELIVERED) for flag in self.flags]

    def assert_complete(self, count: int, *, settled: bool = True, in_order: bool = True) -> None:
        """Every message was sent, settled and received once, in order, and its row has the time of its stamp."""
        assert self.sent == [(seq, 1) for seq in range(count)]
        assert self.settled == (set(range(count)) if settled else set())
        assert (self.received if in_order else sorted(self.received)) == list(range(count))
        assert {flag for flag in self.flags if flag} <= (set() if in_order else {Flag.OUT_OF_ORDER})
        assert self.stamped_ns == self.sent_ns


class Running:
    """One engine in a thread."""

    child: JvmChild  # of those that have one

    def __init__(self, engine: Any, control: Control) -> None:
        self.engine, self.control = engine, control
        arguments = (time.monotonic_ns(),) if isinstance(engine, SenderEngine | JmsSenderEngine) else ()
        self._thread = threading.Thread(target=engine.run, args=arguments)
        self._thread.start()

    def join(self) -> None:
        """A sender ends by itself, when everything is settled."""
        self._thread.join(TIMEOUT_S)
        assert not self._thread.is_alive()

    def close(self) -> None:
        self.control.stop.set()
        self.join()
        self.engine.close()


@contextmanager
def jvm(role: str, url: str, group: Group) -> Iterator[JvmChild]:
    """A JVM with one connection, which is attached."""
    settings = [connection_settings(role, url, group, 0)]
    command = jms_command()
    with tempfile.TemporaryDirectory(prefix="crescendo-jms-") as scratch:
        child = JvmChild([command[0], QUICK, *command[1:]], role, TAG, settings, Path(scratch) / "jvm")
        try:
            await_jvm(child)
            yield child
        finally:
            child.close()


@contextmanager
def jms_sends(url: str, group: Group, count: int, rows: LedgerRows) -> Iterator[Running]:
    with jvm("sender", url, group) as child:
        control = Control()
        sender = JmsSender(0, group, pacer_for(group.rate), Quota(count, UNLIMITED))
        running = Running(JmsSenderEngine([sender], child, rows, control, drain_ns=int(TIMEOUT_S * 1e9)), control)
        running.child = child
        try:
            yield running
        finally:
            running.close()


@contextmanager
def jms_receives(url: str, group: Group, rows: LedgerRows) -> Iterator[Running]:
    with jvm("receiver", url, group) as child:
        control = Control()
        running = Running(JmsReceiverEngine([JmsReceiver(0, group)], child, rows, control, tag=TAG), control)
        running.child = child
        try:
            yield running
        finally:
            running.close()


@contextmanager
def we_send(url: str, group: Group, count: int, rows: LedgerRows) -> Iterator[Running]:
    control = Control()
    channel = await_ready(driver_of(group.protocol, "sender")(url, group))
    sender = Sender(0, group, pacer_for(group.rate), Quota(count, UNLIMITED), channel, TAG)
    running = Running(SenderEngine([sender], rows, control, drain_ns=int(TIMEOUT_S * 1e9)), control)
    try:
        yield running
    finally:
        running.close()


@contextmanager
def we_receive(url: str, group: Group, rows: LedgerRows) -> Iterator[Running]:
    control = Control()
    channel = await_ready(driver_of(group.protocol, "receiver")(url, group))
    running = Running(ReceiverEngine([Receiver(0, group, channel)], rows, control, tag=TAG), control)
    try:
        yield running
    finally:
        running.close()
