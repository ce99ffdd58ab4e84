"""How do hosts of one machine get a network of their own?

Each host is a set of namespaces that its guardian keeps; one process, the switch, connects them. Both hold a pipe to
the process that made the network: when it ends, however it ends, they end too, and so does everything that runs on the
hosts. The network of the machine itself is not touched, and hosts reach nothing but each other.
"""

import contextlib
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType

import msgspec

from crescendo.lab import host_guardian
from crescendo.lab.namespaces import (
    enter_host,
    enter_user,
    is_rootless,
    require_permission,
    unshare_host,
    unshare_network,
)
from crescendo.lab.ownership import LAB_VARIABLE, owner_mark
from crescendo.lab.switch_program import OK, ConnectHost, LimitLink, Request, SetLink
from crescendo.model.errors import ConfigError, LostError
from crescendo.processes.child import ChildProcess, close_pipes, exits_within, first_line, launch_child, wait_or_kill
from crescendo.processes.die_with_parent import die_with_parent

SUBNET = "10.77.0"
MAX_HOSTS = 200
_READY_S, _ANSWER_S, _END_S = 30.0, 10.0, 10.0
_HOST_NAME = re.compile(r"[a-z][a-z0-9-]{0,40}")


class LabHost:
    """One host: programs that it starts have its network, its name and its clock."""

    def __init__(self, name: str, address: str, guardian: ChildProcess, keeper: int, network: "HostNetwork") -> None:
        self.name, self.address = name, address
        self._guardian, self.keeper, self._network = guardian, keeper, network
        """`keeper` is a process that is on the host as long as the host exists."""
        self._port = f"port{address.rpartition('.')[2]}"
        self._children: list[ChildProcess] = []

    def command(self, argv: Sequence[str]) -> list[str]:
        """The command that runs this one on the host."""
        return enter_host(self.keeper, argv, rootless=self._network.rootless)

    def launch(
        self,
        argv: Sequence[str],
        *,
        log: Path | None = None,
        stdin: int = subprocess.DEVNULL,
        stdout: int | None = None,
        stderr: int | None = None,
        env: Mapping[str, str] | None = None,
    ) -> ChildProcess:
        """Start a program on the host. It ends with this process, and with the host."""
        child = launch_child(
            self.command(argv),
            on_fork=die_with_parent(),
            log=log,
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            env={**(os.environ if env is None else env), LAB_VARIABLE: owner_mark()},
        )
        self._children.append(child)
        return child

    def cut(self) -> None:
        """Nothing passes the host's link any more, in either direction. Connections stay open."""
        self._network.ask(SetLink(self._port, "down"))

    def restore(self) -> None:
        """Undo `cut`."""
        self._network.ask(SetLink(self._port, "up"))

    def limit(self, rate_bps: int) -> None:
        """Limit the host's link in each direction, in bits per second; 0 removes the limit."""
        self._network.ask(LimitLink(self._port, self.keeper, rate_bps))

    def join(self) -> None:
        self._network.ask(ConnectHost(self._port, self.keeper, self.address))

    def remove(self) -> None:
        """End everything that runs on it. Safe to call twice."""
        close_pipes(self._guardian)
        wait_or_kill(self._guardian, _END_S)
        for child in self._children:
            wait_or_kill(child, _END_S)
            close_pipes(child)


class HostNetwork:
    """Hosts that reach each other. Use as a context manager, or call close()."""

    def __init__(self, *, rootless: bool | None = None) -> None:
        """Rootless unless this is root. Raises ConfigError where the kernel does not permit it."""
        require_permission()
        self.rootless = is_rootless() if rootless is None else rootless
        self.hosts: dict[str, LabHost] = {}
        argv = unshare_network([sys.executable, "-m", "crescendo.lab.switch_program"], rootless=self.rootless)
        self._switch = self._start(argv)
        with self._closed_on_error():
            self._await_answer(_READY_S)

    def add(self, name: str, *, clock_shift_s: int = 0) -> LabHost:
        """A new host. Its monotonic clock may be ahead of ours by some seconds."""
        if not _HOST_NAME.fullmatch(name) or name in self.hosts:
            raise ConfigError(f"lab: {name!r} is not a new host name; use lower-case letters, digits and hyphens")
        if len(self.hosts) >= MAX_HOSTS:
            raise ConfigError(f"lab: a network has at most {MAX_HOSTS} hosts")
        program = [sys.executable, "-I", "-S", host_guardian.__file__, name]
        made = unshare_host(program, clock_shift_s=clock_shift_s)
        guardian = self._start(enter_user(self._switch.pid, made, rootless=self.rootless))
        with self._closed_on_error():
            keeper = first_line(guardian, _READY_S)
            if not keeper.isdecimal():
                wait_or_kill(guardian, _END_S)
                close_pipes(guardian)
                raise LostError(f"lab: host {name} could not be made: {keeper or 'its guardian said nothing'}")
            host = LabHost(name, f"{SUBNET}.{len(self.hosts) + 2}", guardian, int(keeper), self)
            self.hosts[name] = host
            host.join()
        return host

    def ask(self, request: Request) -> None:
        """Have the switch carry out a request."""
        assert self._switch.stdin is not None  # noqa: S101 - it was started with a pipe
        try:
            self._switch.stdin.write(msgspec.json.encode(request) + b"\n")
            self._switch.stdin.flush()
        except OSError as err:
            raise LostError(f"lab: the switch has ended: {err.strerror}") from err
        self._await_answer(_ANSWER_S)

    def close(self) -> None:
        """Remove hosts, links and every process on them. Safe to call twice."""
        for host in self.hosts.values():
            host.remove()
        close_pipes(self._switch)
        if not exits_within(self._switch, _END_S):
            wait_or_kill(self._switch, 0)

    def __enter__(self) -> "HostNetwork":
        return self

    def __exit__(self, kind: type[BaseException] | None, err: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _start(self, argv: Sequence[str]) -> ChildProcess:
        # Not tied to this process by the kernel: a guardian needs a moment longer than its lab, to remove the rest.
        return launch_child(
            argv,
            on_fork=None,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**os.environ, LAB_VARIABLE: owner_mark()},
        )

    def _await_answer(self, timeout_s: float) -> None:
        answer = first_line(self._switch, timeout_s)
        if answer != OK:
            raise LostError(f"lab: {answer or 'the switch does not answer'}")

    @contextlib.contextmanager
    def _closed_on_error(self) -> Iterator[None]:
        try:
            yield
        except BaseException:
            self.close()
            raise
