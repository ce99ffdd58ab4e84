"""How do several brokers and their database live and end as one system?

One process starts the embedded PostgreSQL, unless a database is named, gives it the schema, starts the brokers in
processes of their own and waits. Told to stop, it lets the brokers drain and then ends the database; killed, it takes
all of them with it. A broker that ends by itself is not started again: the others serve on, and the last one ends the
farm. Serves nothing itself.
"""

import asyncio
import logging
import os
import signal
import subprocess
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
from crescendo.mlmq.postgres.cluster import UNPRIVILEGED
from crescendo.model.errors import ConfigError, LostError
from crescendo.systems.instance_dir import remove_instance_dir
from crescendo.systems.unix_account import unprivileged_account

OnFork = Callable[[], None] | None
_CONNECTIONS_BESIDE_THE_POOL = 3  # of each broker: for notices, for watching, and one to spare
_SPARE_CONNECTIONS = 16
_ENDING = (signal.SIGTERM, signal.SIGINT)
_POLL_S = 0.05
_KILL_AFTER_S = 5.0  # beyond the brokers' own time to drain

log = logging.getLogger(__name__)


class BrokerGroupPlan(Struct, frozen=True, forbid_unknown_fields=True):
    """What to start."""

    brokers: list[dict[str, Any]]  # the configuration of each, without its database
    scratch: str  # a directory of ours for files that nobody else may read
    database: str = ""  # a PostgreSQL of somebody's; empty: an embedded one
    password_file: str = ""  # of that database
    data: list[str] = []  # where the embedded one may keep its data: the first place that its account can reach


def read_plan(path: Path) -> BrokerGroupPlan:
    try:
        return msgspec.json.decode(path.read_bytes(), type=BrokerGroupPlan)
    except (OSError, msgspec.MsgspecError) as err:
        raise ConfigError(f"{path}: is no plan of a farm: {err}") from err


def serve(plan: BrokerGroupPlan, on_fork: OnFork) -> int:
    """Serve until told to stop. The exit code says whether every broker finished what it had taken."""
    for told in _ENDING:
        signal.signal(told, signal.default_int_handler)  # who is told to stop while it starts does not go on
    each = [load_settings(None, document) for document in plan.brokers]
    with _database(plan, each, on_fork) as (url, is_alive):
        asyncio.run(prepare(url, each[0]))
        brokers: list[subprocess.Popen[bytes]] = []
        try:
            for number, document in enumerate(plan.brokers, 1):
                brokers.append(_start(number, {**document, "database": url}, Path(plan.scratch), on_fork))
            _wait(brokers, is_alive)
        finally:
            codes = _stop(brokers, max(settings.drain_timeout for settings in each) / 1e9 + _KILL_AFTER_S)
    return max((abs(code) for code in codes), default=0)


@contextmanager
def _database(
    plan: BrokerGroupPlan, brokers: list[BrokerSettings], on_fork: OnFork
) -> Iterator[tuple[str, Callable[[], bool]]]:
    if plan.database:
        yield _with_password(plan.database, plan.password_file), lambda: True
        return
    place = _reachable(plan.data)
    most = sum(settings.connections + _CONNECTIONS_BESIDE_THE_POOL for settings in brokers) + _SPARE_CONNECTIONS
    server = postgres.start(place, max_connections=most, on_fork=on_fork)
    try:
        log.info("PostgreSQL serves in %s", place)
        yield server.url(), lambda: server.is_alive
    finally:
        if server.pid is not None and server.is_alive:
            os.kill(server.pid, signal.SIGQUIT)  # its data go with the farm: nobody waits until they are tidy
        server.stop()
        remove_instance_dir(place)


def _reachable(places: list[str]) -> Path:
    """As root PostgreSQL runs as another account, which may not get into the directories of root."""
    refusal = ConfigError("data: no place for a database is named")
    for text in places:
        place = Path(text)
        try:
            place.mkdir(mode=0o700, parents=True, exist_ok=True)
            unprivileged_account(UNPRIVILEGED if os.geteuid() == 0 else None, place)
        except OSError as err:
            refusal = ConfigError(f"{place} cannot hold a database: {err.strerror}")
        except ConfigError as err:
            refusal = err
            place.rmdir()
        else:
            return place
    raise refusal


def _with_password(url: str, password_file: str) -> str:
    if not password_file:
        return url
    parts = urlsplit(url)
    user, at, where = parts.netloc.rpartition("@")
    password = quote(Path(password_file).read_text(encoding="utf-8"), safe="")
    return urlunsplit(parts._replace(netloc=f"{user}:{password}{at}{where}"))


def _start(number: int, document: dict[str, Any], scratch: Path, on_fork: OnFork) -> subprocess.Popen[bytes]:
    config = scratch / f"broker-{number}.json"
    config.unlink(missing_ok=True)
    with os.fdopen(os.open(config, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(msgspec.json.encode(document))  # which is YAML as well
    return subprocess.Popen(
        [sys.executable, "-m", "crescendo.cli.main", "broker", "--config", str(config)],
        stdin=subprocess.DEVNULL,
        preexec_fn=on_fork,  # noqa: PLW1509 - one prctl, from the main thread
        start_new_session=True,
    )


def _wait(brokers: list[subprocess.Popen[bytes]], is_alive: Callable[[], bool]) -> None:
    """Until told to stop, or until nobody serves any more."""
    stopping: list[int] = []
    for told in _ENDING:
        signal.signal(told, lambda number, _: stopping.append(number))  # from here on all end in their order
    running = dict(enumerate(brokers, 1))
    while not stopping:
        time.sleep(_POLL_S)
        if not is_alive():
            raise LostError("the embedded PostgreSQL has ended")
        for number, broker in list(running.items()):
            if broker.poll() is not None:
                log.error("broker %d ended with code %d; %d of %d serve on", number, broker.returncode,
                          len(running) - 1, len(brokers))  # fmt: skip
                del running[number]
        if not running:
            raise LostError("no broker is left")


def _stop(brokers: list[subprocess.Popen[bytes]], patience_s: float) -> list[int]:
    deadline_s = time.monotonic() + patience_s
    for broker in brokers:
        broker.terminate()
    for broker in brokers:
        try:
            broker.wait(max(deadline_s - time.monotonic(), 0.0))
        except subprocess.TimeoutExpired:
            broker.kill()
            broker.wait()
    return [broker.returncode for broker in brokers]
