"""How do several brokers and their database start, run and stop as one system?

One process starts the embedded PostgreSQL, unless a database is named, creates the schema, starts the brokers in
processes of their own and waits. On a stop signal it lets the brokers drain and then ends the database; if it is
killed, all of them die with it. A broker that exits by itself is not restarted: the others keep serving, and when the
last one exits the group ends. Serves no requests itself.
"""

import asyncio
import logging
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit, urlunsplit

import msgspec
from msgspec import Struct

from crescendo.mlmq import postgres
from crescendo.mlmq.broker.settings import BrokerSettings, load_settings
from crescendo.mlmq.broker.store import prepare
from crescendo.mlmq.postgres.unprivileged_data import reachable_data
from crescendo.model.errors import ConfigError, LostError
from crescendo.processes.child import ChildProcess, OnFork, launch_child, wait_or_kill

_CONNECTIONS_BESIDE_THE_POOL = 3  # per broker: one for notices, one for health checks, one spare
_SPARE_CONNECTIONS = 16
_STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_POLL_S = 0.05
_KILL_AFTER_S = 5.0  # beyond the brokers' own time to drain

log = logging.getLogger(__name__)


class BrokerGroupPlan(Struct, frozen=True, forbid_unknown_fields=True):
    """What to start."""

    brokers: list[dict[str, Any]]  # the configuration of each broker, without its database
    scratch: str  # a directory of ours for private files
    database: str = ""  # the URL of an external PostgreSQL; empty: an embedded one
    password_file: str = ""  # of that database
    data: str = ""  # the data directory of the embedded one
    outside_dir_file: str = ""  # names the directory for its data when its account cannot reach `data`


def read_plan(path: Path) -> BrokerGroupPlan:
    try:
        return msgspec.json.decode(path.read_bytes(), type=BrokerGroupPlan)
    except (OSError, msgspec.MsgspecError) as err:
        raise ConfigError(f"{path}: is not a valid broker group plan: {err}") from err


def serve(plan: BrokerGroupPlan, on_fork: OnFork | None) -> int:
    """Serve until a stop signal. The exit code says whether every broker finished the requests it had accepted."""
    for stop_signal in _STOP_SIGNALS:
        signal.signal(stop_signal, signal.default_int_handler)  # a stop signal during startup ends the startup
    settings_of_each = [load_settings(None, document) for document in plan.brokers]
    with _database(plan, settings_of_each, on_fork) as (url, is_alive):
        asyncio.run(prepare(url, settings_of_each[0]))
        brokers: list[ChildProcess] = []
        try:
            for number, document in enumerate(plan.brokers, 1):
                brokers.append(_start(number, {**document, "database": url}, Path(plan.scratch), on_fork))
            _wait(brokers, is_alive)
        finally:
            codes = _stop(brokers, max(settings.drain_timeout for settings in settings_of_each) / 1e9 + _KILL_AFTER_S)
    return max((abs(code) for code in codes), default=0)


@contextmanager
def _database(
    plan: BrokerGroupPlan, brokers: list[BrokerSettings], on_fork: OnFork | None
) -> Iterator[tuple[str, Callable[[], bool]]]:
    if plan.database:
        yield _with_password(plan.database, plan.password_file), lambda: True
        return
    directory = reachable_data(Path(plan.data), plan.outside_dir_file)
    max_connections = (
        sum(settings.connections + _CONNECTIONS_BESIDE_THE_POOL for settings in brokers) + _SPARE_CONNECTIONS
    )
    server = postgres.start(directory, max_connections=max_connections, on_fork=on_fork)
    try:
        log.info("PostgreSQL is serving in %s", directory)
        yield server.url(), lambda: server.is_alive
    finally:
        server.stop()  # the data stay: a system that a fault restarts has them again


def _with_password(url: str, password_file: str) -> str:
    if not password_file:
        return url
    parts = urlsplit(url)
    user, at, host = parts.netloc.rpartition("@")
    password = quote(Path(password_file).read_text(encoding="utf-8"), safe="")
    return urlunsplit(parts._replace(netloc=f"{user}:{password}{at}{host}"))


def _start(number: int, document: dict[str, Any], scratch: Path, on_fork: OnFork | None) -> ChildProcess:
    config = scratch / f"broker-{number}.json"
    config.unlink(missing_ok=True)
    with os.fdopen(os.open(config, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(msgspec.json.encode(document))  # JSON is valid YAML
    return launch_child(
        [sys.executable, "-m", "crescendo.cli.main", "broker", "--config", str(config)], on_fork=on_fork
    )


def _wait(brokers: list[ChildProcess], is_alive: Callable[[], bool]) -> None:
    """Return on a stop signal; raise when the database or the last broker has ended."""
    stopping: list[int] = []
    for stop_signal in _STOP_SIGNALS:
        signal.signal(stop_signal, lambda number, _: stopping.append(number))  # from here on the shutdown is orderly
    running = dict(enumerate(brokers, 1))
    while not stopping:
        time.sleep(_POLL_S)
        if not is_alive():
            raise LostError("the embedded PostgreSQL has ended")
        for number, broker in list(running.items()):
            if broker.poll() is not None:
                log.error("broker %d exited with code %d; %d of %d still serving", number, broker.returncode,
                          len(running) - 1, len(brokers))  # fmt: skip
                del running[number]
        if not running:
            raise LostError("no broker is left")


def _stop(brokers: list[ChildProcess], timeout_s: float) -> list[int]:
    deadline_s = time.monotonic() + timeout_s
    for broker in brokers:
        broker.terminate()
    for broker in brokers:
        wait_or_kill(broker, max(deadline_s - time.monotonic(), 0.0))
    return [broker.returncode for broker in brokers]
