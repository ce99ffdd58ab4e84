"""How does a blueprint become a running system, and how is it removed without a trace?

The same for all kinds: write the files, start the processes, wait until a probe succeeds, undo all of it at the end. A
failure during the start, Ctrl-C included, stops and removes everything before the error is raised. Knows no kind by
name.
"""

import contextlib
import os
import re
import secrets
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from crescendo.model.errors import ConfigError, PeerError
from crescendo.processes.child import ChildProcess, OnFork, Readiness, await_ready, launch_child, signal_name
from crescendo.processes.ending import TOKEN, end_all, part_token
from crescendo.processes.log_tail import last_log_lines, last_log_lines_with
from crescendo.processes.ref import ProcessRef, process_ref
from crescendo.systems.base import Blueprint, Installation, Launch, Surroundings, SystemKind, SystemSettings
from crescendo.systems.instance_dir import (
    DATA,
    MIN_FREE_BYTES,
    create_instance_dir,
    create_outside_dir,
    free_bytes,
    log_of,
    move_logs,
    remove_instance_dir,
)
from crescendo.systems.least_privilege import ChosenAccount, choose_account
from crescendo.systems.ports import accepts, choose_ports
from crescendo.systems.secret_forms import hide_secrets, placeholder_settings, redact_text, secret_forms
from crescendo.systems.settings import endpoint_names, redacted_settings, settings_of
from crescendo.systems.tls import probe_tls, secure_files, secure_ports
from crescendo.systems.unix_account import give_directory

START_TIMEOUT_S = 90.0
STOP_GRACE_S = 10.0
_MAX_START_LOG_BYTES = 4 * 2**20


def start(
    kind: SystemKind,
    settings: Mapping[str, Any],
    *,
    directory: Path,
    home: Path | None = None,
    version: str | None = None,
    on_fork: OnFork | None = None,
    ports: Mapping[str, int] | None = None,
    keep_logs: Path | None = None,
    timeout_s: float = START_TIMEOUT_S,
    stop_grace_s: float | None = None,
    on_launch: Callable[["RunningInstance"], None] | None = None,
    waits: bool = True,
    surroundings: Surroundings | None = None,
) -> "RunningInstance":
    """Start a system in a directory that does not exist yet, and return when it serves.

    `on_launch` is called before the first process and after each one, so that the caller can record them in case this
    process is killed. Without `waits` it returns as soon as the processes run, so that several systems can start at
    once; the caller awaits each of them.
    """
    checked = settings_of(kind, settings)
    installation = kind.find(home, version)
    chosen = choose_ports(
        (*kind.ports, *checked.extra_ports, *secure_ports(kind, checked)), ports or {}, checked.listen
    )
    directory = directory.absolute()
    blueprint = kind.plan(checked, installation, directory, chosen)
    around = surroundings or Surroundings()
    instance = RunningInstance(
        kind, checked, installation, chosen, directory, blueprint, keep_logs, stop_grace_s, around
    )
    tls_files = secure_files(checked, needs_keystore=blueprint.needs_keystore)
    create_instance_dir(directory, {**blueprint.files, **tls_files, **around.files})
    notify = on_launch or (lambda _: None)
    try:
        for part, disk in around.disks.items():
            (directory / DATA / part).mkdir(mode=0o700, exist_ok=True)
            disk.attach(directory / DATA / part)
        instance.give_to_account()
        notify(instance)
        instance.launch_all(on_fork, timeout_s, notify)
        if waits:
            instance.await_service(timeout_s)
    except BaseException:
        instance.stop()
        raise
    return instance


class ProcessExit(NamedTuple):
    """How a process ended, and what it logged last."""

    how: str
    log_lines: str


class RunningInstance:
    """A system that this process started."""

    def __init__(
        self,
        kind: SystemKind,
        settings: SystemSettings,
        installation: Installation,
        ports: Mapping[str, int],
        directory: Path,
        blueprint: Blueprint,
        keep_logs: Path | None,
        stop_grace_s: float | None = None,
        surroundings: Surroundings | None = None,
    ) -> None:
        self._surroundings = surroundings or Surroundings()
        self._kind, self._settings, self._installation = kind, settings, installation
        self._ports, self._blueprint, self._keep_logs = ports, blueprint, keep_logs
        self._stop_grace_s = stop_grace_s
        self.directory = directory
        self.token = secrets.token_hex(8)
        self._shown = self._plan(hide_secrets(settings))
        self._secret_forms = secret_forms(settings, blueprint.files, self._plan(placeholder_settings(settings)).files)
        self.outside_dirs: list[Path] = []
        self._account = ChosenAccount(None)
        self._children: list[ChildProcess] = []
        self.processes: list[ProcessRef] = []
        self._logged_before: dict[str, int] = {}  # log bytes of each process when it was started last

    @property
    def endpoints(self) -> Mapping[str, str]:
        return self._blueprint.endpoints

    @property
    def url(self) -> str:
        for name in endpoint_names():
            if name in self.endpoints:
                return self.endpoints[name]
        return next(iter(self.endpoints.values()))

    @property
    def pid(self) -> int:
        return self.main_process.pid

    @property
    def facts(self) -> dict[str, Any]:
        installation, shown = self._installation, self._shown
        facts: dict[str, Any] = {
            "kind": self._kind.name,
            "version": installation.version,
            "origin": installation.origin,
            "home": str(installation.home),
            "sha256": installation.sha256,
            "java": str(installation.java) if installation.java else None,
            "java_version": installation.java_version,
            "pid": self.pid,
            "uid": self._account.account.uid if self._account.account else os.geteuid(),
            "runs_as_root_because": self._account.reason,
            "ports": dict(self._ports),
            "settings": redacted_settings(self._settings),
            "commands": {launch.name: list(launch.argv) for launch in shown.launches},
            "configuration": {
                path: text for path, text in sorted(shown.files.items()) if path not in shown.secrets and text
            },
        }
        return {key: value for key, value in facts.items() if value is not None}

    def _plan(self, settings: SystemSettings) -> Blueprint:
        return self._kind.plan(settings, self._installation, self.directory, self._ports)

    def give_to_account(self) -> None:
        """Decide which account it runs as, and give it the directory. Once: afterwards it may have put links there."""
        self._account = choose_account(self._blueprint, self._installation, self.directory, self._ports)
        if self._account.account is not None:
            give_directory(self.directory, self._account.account)
        elif self._blueprint.outside_dir_file is not None and os.geteuid() == 0:
            self.outside_dirs.append(create_outside_dir(self.directory / self._blueprint.outside_dir_file))

    def launch_all(
        self, on_fork: OnFork | None, timeout_s: float, notify: Callable[["RunningInstance"], None] = lambda _: None
    ) -> None:
        for launch in self._blueprint.launches:
            self.launch(launch, on_fork)
            notify(self)
            # The first node must serve before another one starts, which would serve instead. Others that serve
            # beside it start together.
            is_first = launch.node in self.node_names[:1]
            if is_first or launch.stands_by or not launch.node:
                self.await_listener(launch, timeout_s, may_stand_by=not is_first)

    def launch(self, launch: Launch, on_fork: OnFork | None) -> None:
        """Start a process; the successor of one that ended takes its place."""
        account = self._account.account
        log = log_of(self.directory, launch.name)
        self._logged_before[launch.name] = log.stat().st_size if log.exists() else 0
        try:
            process = launch_child(
                launch.argv,
                on_fork=on_fork,
                log=log,
                env=self._environment(launch),
                cwd=launch.cwd or self.directory,
                user=account.uid if account else None,
                group=account.gid if account else None,
                umask=0o077,
            )
        except OSError as err:
            raise ConfigError(f"{self._kind.name} cannot start {launch.argv[0]}: {err.strerror}") from err
        ref = process_ref(launch.name, process.pid)
        places = [at for at, known in enumerate(self.processes) if known.name == launch.name]
        if places:
            self._children[places[0]], self.processes[places[0]] = process, ref
        else:
            self._children.append(process)
            self.processes.append(ref)

    def await_listener(self, launch: Launch, timeout_s: float, *, may_stand_by: bool = True) -> None:
        """Wait until the process listens, or stands by for another node, where the next process needs it."""
        port = launch.listens_on
        if port is None:
            return
        children = self._children_of(launch.node) if launch.node else self._children

        def is_ready() -> bool:
            return accepts(port, launch.listens_at) or (may_stand_by and self._stands_by(launch))

        if not self._becomes(is_ready, timeout_s, children):
            raise self._failure(f"{launch.name} did not listen within {timeout_s:.0f} s", launch.name)

    def _stands_by(self, launch: Launch) -> bool:
        if not launch.stands_by:
            return False
        with contextlib.suppress(OSError), log_of(self.directory, launch.name).open("rb") as log:
            log.seek(self._logged_before[launch.name])
            logged = log.read(_MAX_START_LOG_BYTES)
            return any(text.encode() in logged for text in launch.stands_by)
        return False

    def await_service(self, timeout_s: float) -> None:
        """Wait until the kind's own probe succeeds."""
        refusals: list[PeerError] = []

        def serves() -> bool:
            try:
                self._kind.probe(self.endpoints, self._settings)
                probe_tls(self.endpoints)
            except PeerError as err:
                refusals[:] = [err]
                return False
            return True

        if not self._becomes(serves, timeout_s, self._children):
            serving = self.processes[self._blueprint.serving].name
            err = refusals[-1]
            raise self._failure(f"it did not serve within {timeout_s:.0f} s ({err})", serving) from err

    def stop(self) -> None:
        grace_s = STOP_GRACE_S if self._stop_grace_s is None else self._stop_grace_s
        slow = {launch.name for launch in self._blueprint.launches if launch.ends_slowly}
        end_all(self.processes, self.token, grace_s, at_once=slow)
        for child in self._children:
            child.wait()
        if self._keep_logs is not None:
            move_logs(self.directory, self._keep_logs, self._secret_forms)
        for disk in self._surroundings.disks.values():
            disk.detach()
        for directory in (*self.outside_dirs, self.directory):
            remove_instance_dir(directory)

    def exit(self, node: str | None = None) -> ProcessExit | None:
        """How the first of its processes, or of a node's, that has ended did so; None while all are running."""
        own = None if node is None else {launch.name for launch in self.launches_of(node)}
        for child, process in zip(self._children, self.processes, strict=True):
            code = child.poll()
            if code is not None and (own is None or process.name in own):
                return ProcessExit(f"{self._kind.name} ended {_how(code)}", self._log_lines(process.name))
        return None

    @property
    def called(self) -> Mapping[str, Mapping[str, str]]:
        """Endpoint -> queue -> the name by which clients of that protocol call it, where that differs."""
        return self._blueprint.called

    @property
    def further_nodes(self) -> Sequence[Mapping[str, str]]:
        """The endpoints of the nodes after the first."""
        return self._blueprint.further_nodes

    @property
    def node_names(self) -> list[str]:
        """The nodes that can fail alone; none if the system is one."""
        return list(dict.fromkeys(launch.node for launch in self._blueprint.launches if launch.node))

    def launches_of(self, node: str) -> list[Launch]:
        return [launch for launch in self._blueprint.launches if launch.node == node]

    def processes_of(self, node: str) -> list[ProcessRef]:
        names = {launch.name for launch in self.launches_of(node)}
        return [process for process in self.processes if process.name in names]

    def _children_of(self, node: str) -> list[ChildProcess]:
        names = {launch.name for launch in self.launches_of(node)}
        return [child for child, known in zip(self._children, self.processes, strict=True) if known.name in names]

    def end_node(self, node: str, grace_s: float) -> None:
        """End the processes of one node, those with grace 0 without warning; its data on disk stays."""
        children = self._children_of(node)
        if grace_s == 0:
            for child in children:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(child.pid, signal.SIGKILL)
        end_all(self.processes_of(node), part_token(self.token, node), grace_s)
        for child in children:
            child.wait()

    def last_log_lines(self) -> str:
        """What the serving process logged last, without secrets."""
        return self._log_lines(self.main_process.name)

    def last_log_lines_with(self, wanted: re.Pattern[str]) -> str:
        """The last lines of the serving process that say this, without secrets."""
        log = log_of(self.directory, self.main_process.name)
        return redact_text(last_log_lines_with(log, wanted), self._secret_forms)

    @property
    def ports(self) -> Mapping[str, int]:
        return self._ports

    @property
    def main_process(self) -> ProcessRef:
        """The process that serves."""
        return self.processes[self._blueprint.serving]

    def end(self) -> None:
        """Let the system shut down in order; its data on disk stays."""
        end_all(self.processes, self.token, STOP_GRACE_S)
        for child in self._children:
            child.wait()

    def crash(self) -> None:
        """Kill the system without warning; its data on disk stays."""
        for child in self._children:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
        end_all(self.processes, self.token, 0)
        for child in self._children:
            child.wait()

    def restart(self, *, on_fork: OnFork | None = None, timeout_s: float = START_TIMEOUT_S) -> None:
        """Start the system again after it ended, with its data and on the same ports."""
        self._children.clear()
        self.processes.clear()
        self.launch_all(on_fork, timeout_s)
        self.await_service(timeout_s)

    def _environment(self, launch: Launch) -> dict[str, str]:
        """A minimal environment, so that the system behaves the same for every user."""
        return {
            "PATH": os.environ.get("PATH", os.defpath),
            "LANG": "C.UTF-8",
            "HOME": str(self.directory),
            "TMPDIR": str(self.directory / "tmp"),
            TOKEN: part_token(self.token, launch.node) if launch.node else self.token,
            **launch.env,
            **self._surroundings.env(self.directory, launch.node),
        }

    def _becomes(self, is_ready: Callable[[], bool], timeout_s: float, children: Sequence[ChildProcess]) -> bool:
        """Wait until it is ready. False: not in time. Raises if one of these processes has ended."""
        found = await_ready(children, is_ready, deadline_s=time.monotonic() + timeout_s)
        if found is Readiness.ENDED:
            self._raise_if_ended()
        return found is Readiness.READY

    def _raise_if_ended(self) -> None:
        for child, process in zip(self._children, self.processes, strict=True):
            code = child.poll()
            if code is not None:
                raise self._failure(f"{process.name} ended {_how(code)} before it served", process.name)

    def _failure(self, what: str, name: str) -> ConfigError:
        message = f"{self._kind.name} could not be started: {what}"
        if free_bytes(self.directory) < MIN_FREE_BYTES:
            message += f"; the disk of {self.directory} is full"
        message, lines = redact_text(message, self._secret_forms), self._log_lines(name)
        return ConfigError(f"{message}; last log lines: {lines}" if lines else f"{message}, and its log is empty")

    def _log_lines(self, name: str) -> str:
        """The last log lines of a process, without secrets."""
        return redact_text(last_log_lines(log_of(self.directory, name)), self._secret_forms)


def _how(code: int) -> str:
    return f"with exit code {code}" if code >= 0 else f"by {signal_name(-code)}"
