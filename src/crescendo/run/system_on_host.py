"""How does a system under test run on a host of the lab?

It must be started, probed and stopped in the network of that host, so a process of its own does that there:
`python -m crescendo.run.system_on_host`. It reads what to start as one line of JSON, says how that went as another, and
one more if the system ends by itself. If the system is a node of a network, it also waits for the node's links when it
is asked to. When its standard input ends it stops the system and exits. `HostedSystem` is the handle of that process.
"""

import contextlib
import select
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from crescendo.lab.lab_host import LabHost
from crescendo.model.errors import ConfigError, CrescendoError, LostError
from crescendo.processes.child import close_pipes, first_line, launch_child, wait_or_kill
from crescendo.processes.die_with_parent import die_with_parent
from crescendo.systems.instance import START_TIMEOUT_S, ProcessExit, RunningInstance, start
from crescendo.systems.registry import system_of
from crescendo.topology.local_network import LINKS_TIMEOUT_S, await_links
from crescendo.topology.local_node import LocalNode
from crescendo.topology.node_order import NodeOrder

_MORE_S = 30.0  # of our own start, and to stop a system that does not serve
_POLL_S = 0.1
_STOP_S = 20.0
_MAX_LINE_BYTES = 2**24
_LINKS = b"links"


class HostedSystemOrder(Struct, frozen=True):
    """What to start."""

    kind: str
    settings: dict[str, Any]
    directory: str
    logs: str
    home: str | None
    version: str | None
    stop_grace_s: float | None
    node: NodeOrder | None = None  # a node of a network, which starts from the files that are rendered for it


class _Started(Struct, frozen=True):
    """How it went: a reason if it could not be started."""

    endpoints: dict[str, str] = {}
    pid: int = 0
    facts: dict[str, Any] = {}
    reason: str = ""
    is_lost: bool = False


class _Ended(Struct, frozen=True, tag=True):
    """The system ended by itself."""

    how: str
    log_lines: str


class _Linked(Struct, frozen=True, tag=True):
    """The links of the node are connected; a reason if they are not."""

    reason: str = ""


class HostedSystem:
    """A system that runs on a host of the lab."""

    def __init__(self, host: LabHost, order: HostedSystemOrder, *, waits: bool = True) -> None:
        """Start it, and return when it serves. Raises ConfigError if it cannot be started.

        Without `waits` it returns at once, so that several can start together; the caller awaits each of them.
        """
        self._kind = order.kind
        self._process = launch_child(
            host.network_command([sys.executable, "-m", "crescendo.run.system_on_host"]),
            on_fork=die_with_parent(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self._ended: ProcessExit | None = None
        self._ask(msgspec.json.encode(order))
        if waits:
            try:
                self.await_service()
            except BaseException:
                self.stop()
                raise

    def _ask(self, line: bytes) -> None:
        assert self._process.stdin is not None  # noqa: S101 - it was started with a pipe
        with contextlib.suppress(OSError):
            self._process.stdin.write(line + b"\n")
            self._process.stdin.flush()

    def await_service(self) -> None:
        """Wait until it serves."""
        line = first_line(self._process, START_TIMEOUT_S + _MORE_S)
        if not line:
            raise LostError(f"{self._kind} could not be started on its host: no answer")
        started = msgspec.json.decode(line, type=_Started)
        if started.reason:
            raise (LostError if started.is_lost else ConfigError)(started.reason)
        self.endpoints, self.pid, self.facts = started.endpoints, started.pid, started.facts

    def await_links(self) -> None:
        """Wait until every link that the node opens is connected. Raises ConfigError if one is not in time."""
        self._ask(_LINKS)
        line = first_line(self._process, LINKS_TIMEOUT_S + _MORE_S)
        if not line:
            raise LostError(f"{self._kind}: the process that keeps it does not answer")
        answer = msgspec.json.decode(line, type=_Ended | _Linked)
        if isinstance(answer, _Ended):
            raise ConfigError(f"{answer.how}; last log lines: {answer.log_lines}")
        if answer.reason:
            raise ConfigError(answer.reason)

    def exit(self) -> ProcessExit | None:
        """How the system ended; None while it runs."""
        if self._ended is None and self._process.stdout is not None:
            if self._process.stdout.closed or not select.select([self._process.stdout], [], [], 0)[0]:
                return None
            line = self._process.stdout.readline()
            ended = msgspec.json.decode(line, type=_Ended) if line else _Ended("the process that keeps it was lost", "")
            self._ended = ProcessExit(ended.how, ended.log_lines)
        return self._ended

    def stop(self) -> None:
        """Stop it and everything of it. Safe to call twice."""
        if self._process.stdin is not None:
            with contextlib.suppress(OSError):
                self._process.stdin.close()
        wait_or_kill(self._process, _STOP_S)
        close_pipes(self._process)


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    order = msgspec.json.decode(sys.stdin.buffer.readline(_MAX_LINE_BYTES), type=HostedSystemOrder)
    try:
        kind = system_of(order.kind) if order.node is None else order.node.kind
        instance = start(
            kind,
            order.settings,
            ports=kind.wanted_ports if isinstance(kind, LocalNode) else None,
            directory=Path(order.directory),
            home=None if order.home is None else Path(order.home),
            version=order.version,
            on_fork=die_with_parent(),
            keep_logs=Path(order.logs) if order.logs else None,
            stop_grace_s=order.stop_grace_s,
        )
    except CrescendoError as err:
        _say(_Started(reason=str(err), is_lost=isinstance(err, LostError)))
        return
    try:
        _say(_Started(dict(instance.endpoints), instance.pid, instance.facts))
        reported = False
        while True:
            if select.select([sys.stdin], [], [], _POLL_S)[0]:
                if order.node is None or sys.stdin.buffer.readline() != _LINKS + b"\n":
                    return
                _say(_linked(order.node, instance))
            elif not reported and (ended := instance.exit()) is not None:
                reported = True
                _say(_Ended(ended.how, ended.log_lines))
    finally:
        instance.stop()


def _linked(node: NodeOrder, instance: RunningInstance) -> _Linked:
    try:
        await_links(node.network, node.graph_node, instance)
    except CrescendoError as err:
        return _Linked(str(err))
    return _Linked()


def _say(answer: Struct) -> None:
    sys.stdout.buffer.write(msgspec.json.encode(answer) + b"\n")
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
