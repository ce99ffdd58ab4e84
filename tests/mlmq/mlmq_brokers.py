"""Brokers for tests: in this process on its event loop, or in separate processes that can be killed."""

import asyncio
import contextlib
import json
import subprocess
import sys
import tempfile
import warnings
from collections.abc import AsyncIterator, Coroutine, Iterator
from pathlib import Path
from typing import Any

import uvloop

from crescendo.mlmq.broker.server import Broker
from crescendo.mlmq.broker.settings import BrokerSettings
from crescendo.mlmq.client import AsyncClient
from crescendo.processes.die_with_parent import die_with_parent

TIMEOUT_S = 120.0
_LAUNCH = """
import sys
from pathlib import Path
from crescendo.cli.broker import broker
sys.exit(broker(sys.argv[1] or None, config=Path(sys.argv[2]), as_json=True))
"""


def run_scenario(coroutine: Coroutine[Any, Any, None]) -> None:
    """Run a test on the event loop that brokers use, with a time limit."""

    async def limited() -> None:
        async with asyncio.timeout(TIMEOUT_S):
            await coroutine

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        try:
            runner.run(limited())
        except BaseException:
            # A failed scenario leaves connections open; where warnings are errors, uvloop never ends closing its loop.
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ResourceWarning)
                runner.close()
            raise


@contextlib.asynccontextmanager
async def serving(url: str, **settings: Any) -> AsyncIterator[Broker]:
    broker = Broker(BrokerSettings(listen="127.0.0.1:0", **settings), url)
    await broker.start()
    try:
        yield broker
    finally:
        await broker.close()


@contextlib.asynccontextmanager
async def client(name: str, *brokers: str, **options: Any) -> AsyncIterator[AsyncClient]:
    """A registered client."""
    async with AsyncClient(name, brokers, **{"timeout_s": 30.0, "attempt_timeout_s": 10.0, **options}) as one:
        await one.register()
        yield one


class BrokerProcess:
    """A broker that can be killed. It keeps its port, so that clients can reconnect."""

    def __init__(self, url: str, directory: Path, port: int = 0, **settings: Any) -> None:
        self._command = [sys.executable, "-c", _LAUNCH, url, str(directory / "broker.yml")]
        self._settings = {"listen": f"127.0.0.1:{port}", **settings}
        self._directory = directory
        self.launch()
        self.await_service()

    def launch(self) -> None:
        """Call from the main thread: the process dies with the thread that started it."""
        (self._directory / "broker.yml").write_text(json.dumps(self._settings))
        with (self._directory / "broker.log").open("ab") as log:
            self.process = subprocess.Popen(die_with_parent().wrap(self._command), stdout=subprocess.PIPE, stderr=log)

    def await_service(self) -> None:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            self.process.wait()
            self.process.stdout.close()
            raise AssertionError(f"the broker did not start:\n{self.log}")
        document = json.loads(line)
        self.address = document["url"].removeprefix("mlmq://")
        self.http = document["http"]
        self._settings["listen"] = self.address

    @property
    def log(self) -> str:
        return (self._directory / "broker.log").read_text()

    def kill(self) -> None:
        self.process.kill()
        self.end()

    def end(self) -> int:
        """Wait for it to exit after it was stopped."""
        code = self.process.wait(TIMEOUT_S)
        assert self.process.stdout is not None
        self.process.stdout.close()
        return code


@contextlib.contextmanager
def public_directory() -> Iterator[Path]:
    """A directory that every account can reach: started by root, PostgreSQL runs as another account."""
    with tempfile.TemporaryDirectory(prefix="crescendo-test-") as name:
        Path(name).chmod(0o755)
        yield Path(name)


@contextlib.contextmanager
def process(url: str, directory: Path, **settings: Any) -> Iterator[BrokerProcess]:
    broker = BrokerProcess(url, directory, **settings)
    try:
        yield broker
    finally:
        if broker.process.poll() is None:
            broker.kill()
