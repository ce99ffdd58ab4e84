"""How does the embedded PostgreSQL start and stop?

It runs in a directory of its own, durable, reachable over a private socket (and over a loopback port if one is named),
with a generated password. It stops with a fast shutdown, or an immediate one when that takes too long. It dies with its
parent process; the next start then recovers. Creates no tables.
"""

import os
import signal
import time
from pathlib import Path
from typing import Final
from urllib.parse import quote

import psutil

from crescendo.mlmq.postgres.cluster import SOCKET_PORT, USER, Cluster
from crescendo.model.errors import ConfigError
from crescendo.processes.child import ChildProcess, OnFork, Readiness, await_ready, exits_within, launch_child
from crescendo.systems.ports import HOST, choose_ports

START_TIMEOUT_S: Final = 60.0
FAST_STOP_S: Final = 15.0
IMMEDIATE_STOP_S: Final = 5.0
MAX_CONNECTIONS: Final = 100
_POLL_S = 0.02
_STATUS_LINE = 7  # of postmaster.pid, as pg_ctl reads it
# Backends of a killed server take a moment to exit; until then PostgreSQL refuses to start beside them.
_STILL_ENDING = ("pre-existing shared memory block", "lock file")


def start(
    directory: Path | None = None,
    *,
    port: int | None = None,
    max_connections: int = MAX_CONNECTIONS,
    on_fork: OnFork | None = None,
    timeout_s: float = START_TIMEOUT_S,
    password: str | None = None,
) -> "Server":
    """Start it and return when it is serving. Without a directory its data are deleted when it stops.

    `on_fork` runs in the child before PostgreSQL does; pass what makes it die with its parent. Call from the main
    thread: to the kernel, the parent dies when the forking thread ends.
    """
    if port is not None:
        choose_ports(("postgres",), {"postgres": port})
    server = Server(Cluster(directory, password), port, max_connections)
    try:
        server.launch(on_fork, time.monotonic() + timeout_s)
    except BaseException:
        server.stop()
        raise
    return server


class Server:
    """A PostgreSQL that we have started."""

    def __init__(self, cluster: Cluster, port: int | None, max_connections: int) -> None:
        self._cluster, self._port, self._max_connections = cluster, port, max_connections
        self._process: ChildProcess | None = None

    @property
    def directory(self) -> Path:
        return self._cluster.directory

    @property
    def binaries(self) -> Path:
        """Where its programs are; its account can run them."""
        return self._cluster.binaries

    @property
    def pid(self) -> int | None:
        """The pid of the postmaster; None after `stop`."""
        return self._process.pid if self._process else None

    @property
    def is_alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def url(self, database: str = "postgres") -> str:
        """A URL for asyncpg. Contains the password."""
        credentials = f"postgresql://{USER}:{quote(self._cluster.password, safe='')}"
        name = quote(database, safe="")
        if self._port is not None:
            return f"{credentials}@{HOST}:{self._port}/{name}"
        return f"{credentials}@/{name}?host={quote(str(self._cluster.socket), safe='/')}&port={SOCKET_PORT}"

    def launch(self, on_fork: OnFork | None, deadline_s: float) -> None:
        """Start the process; retry while processes of a killed predecessor are still ending."""
        while True:
            self._remove_stale_files()
            self._process = process = self._spawn(on_fork)
            if self._await_readiness(process, deadline_s):
                return
            failure = self._cluster.failure(f"PostgreSQL ended with code {process.returncode} before it was up")
            # Search the whole log: its last lines may come from the predecessor, which writes to the same file.
            log_text = self._cluster.log.read_text(errors="replace")
            if time.monotonic() > deadline_s or not any(message in log_text for message in _STILL_ENDING):
                raise failure
            time.sleep(_POLL_S * 10)

    def stop(self) -> None:
        """End it, in the gentlest way that works, and unlock the directory. Safe to call twice."""
        process, self._process = self._process, None
        if process is not None:
            for number, timeout_s in ((signal.SIGINT, FAST_STOP_S), (signal.SIGQUIT, IMMEDIATE_STOP_S)):
                process.send_signal(number)
                if exits_within(process, timeout_s):
                    break
            else:
                process.kill()
                process.wait()
        self._cluster.release()

    def _spawn(self, on_fork: OnFork | None) -> ChildProcess:
        account, cluster = self._cluster.account, self._cluster
        program = cluster.binaries / "postgres"
        try:
            cluster.log.write_bytes(b"")  # emptied, then appended to: backends of a killed predecessor may still write
            return launch_child(
                [str(program), "-D", str(cluster.data), *self._options()],
                on_fork=on_fork,
                log=cluster.log,
                env=cluster.environment(),
                cwd=cluster.data,
                user=account.uid if account else None,
                group=account.gid if account else None,
                umask=0o077,
            )
        except OSError as err:
            raise ConfigError(f"{program} cannot be started: {err.strerror}") from err

    def _options(self) -> list[str]:
        settings = {
            "listen_addresses": HOST if self._port is not None else "",
            "port": self._port if self._port is not None else SOCKET_PORT,
            "unix_socket_directories": self._cluster.socket,
            "unix_socket_permissions": "0700",
            "max_connections": self._max_connections,
            "password_encryption": "scram-sha-256",
            # Durable, regardless of any configuration file in the directory.
            "fsync": "on",
            "synchronous_commit": "on",
            "full_page_writes": "on",
            # Every statement is short: compiling one costs more than running it.
            "jit": "off",
            # Queues turn over fast, and scanning dead rows makes dequeues slow.
            "autovacuum_naptime": "10s",
        }
        return [argument for name, value in settings.items() for argument in ("-c", f"{name}={value}")]

    def _await_readiness(self, process: ChildProcess, deadline_s: float) -> bool:
        """Wait until its pid file says that it is ready. False: it has exited."""
        pid = str(process.pid)

        def is_ready() -> bool:
            lines = _pid_file(self._cluster.data)
            return len(lines) > _STATUS_LINE and lines[0] == pid and lines[_STATUS_LINE].strip() == "ready"

        found = await_ready([process], is_ready, deadline_s=deadline_s, poll_s=_POLL_S)
        if found is Readiness.TIMED_OUT:
            raise self._cluster.failure("PostgreSQL was not ready in time")
        return found is Readiness.READY

    def _remove_stale_files(self) -> None:
        """Lock files survive a crash, and the pid in them may now belong to a zombie or to an unrelated process.

        PostgreSQL cannot tell, but we can: a server and its backends run in their data directory. While one does, the
        files stay, because PostgreSQL uses them to find its predecessor's backends.
        """
        data = self._cluster.data
        working = [process.pid for process in psutil.process_iter() if _works_in(process, data)]
        server = next(iter(_pid_file(data)), "")
        if server.isdecimal() and int(server) in working:
            raise ConfigError(f"PostgreSQL {server} already serves {data}; stop it, or choose another directory")
        if not working:
            for left in (data / "postmaster.pid", *self._cluster.socket.iterdir()):
                left.unlink(missing_ok=True)


def _pid_file(data: Path) -> list[str]:
    try:
        return (data / "postmaster.pid").read_text().splitlines()
    except (OSError, UnicodeDecodeError):
        return []


def _works_in(process: psutil.Process, data: Path) -> bool:
    try:
        return process.status() != psutil.STATUS_ZOMBIE and os.path.samefile(process.cwd(), data)
    except (psutil.Error, OSError):
        return False
