"""How does a running broker receive stop and diagnostic commands?

By SIGTERM or SIGINT, or by a command in the command file. Both ways to stop drain first: accepted requests are
answered, then the broker ends. A second signal stops it at once. Assembles nothing and serves nothing.
"""

import asyncio
import gc
import logging
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from pathlib import Path

import psutil

from crescendo.mlmq.broker import command_file
from crescendo.mlmq.broker.command_file import CommandFile
from crescendo.mlmq.broker.server import Broker
from crescendo.mlmq.broker.settings import BrokerSettings
from crescendo.model.errors import LostError

log = logging.getLogger(__name__)

_WATCH_S = 1.0
_MAX_TASKS = 200  # in a stack trace: a broker may have thousands, and the first ones suffice


async def supervise(
    settings: BrokerSettings,
    database_url: str,
    *,
    announce: Callable[[Broker], None],
    is_database_alive: Callable[[], bool] = lambda: True,
) -> bool:
    """Serve until a stop command. False: some accepted requests could not be finished in time.

    `is_database_alive` is polled when the database is embedded.
    """
    stop, stop_now = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, _stop_by_signal, number, stop, stop_now)
    # Before the broker announces itself: commands count from then on.
    commands = CommandFile(Path(settings.command_file)) if settings.command_file else None
    broker = Broker(settings, database_url)
    starting = loop.create_task(broker.start())
    stopping = loop.create_task(stop.wait())
    watching: asyncio.Task[None] | None = None
    try:
        await asyncio.wait({starting, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if not starting.done():  # stopped while waiting for the database
            return True
        starting.result()
        gc.freeze()  # what was imported stays: no collection need look at it again
        announce(broker)
        watching = loop.create_task(_watch(commands, settings.command_poll / 1e9, stop, is_database_alive))
        await asyncio.wait({watching, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if watching.done():
            watching.result()
        return await _drain(broker, stop_now)
    finally:
        tasks = [task for task in (starting, stopping, watching) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await broker.close()


async def _drain(broker: Broker, stop_now: asyncio.Event) -> bool:
    loop = asyncio.get_running_loop()
    draining, stopping_now = loop.create_task(broker.drain()), loop.create_task(stop_now.wait())
    await asyncio.wait({draining, stopping_now}, return_when=asyncio.FIRST_COMPLETED)
    drained = draining.done() and draining.result()
    for task in (draining, stopping_now):
        task.cancel()
    await asyncio.gather(draining, stopping_now, return_exceptions=True)
    if not drained:
        log.warning("ended before every request was answered")
    return drained


async def _watch(
    commands: CommandFile | None, poll_s: float, stop: asyncio.Event, is_database_alive: Callable[[], bool]
) -> None:
    while True:
        await asyncio.sleep(poll_s if commands else _WATCH_S)
        if not is_database_alive():
            raise LostError("the embedded PostgreSQL has ended; restart the broker to recover its data")
        command = commands.poll() if commands else None
        if command is not None:
            handle_command(command, stop)


def handle_command(command: str, stop: asyncio.Event) -> None:
    """Execute one command. An unknown one is logged and ignored."""
    match command:
        case command_file.SHUTDOWN:
            log.info("shutdown: requested by the command file")
            stop.set()
        case command_file.LOG_STACK_TRACE:
            log.info("stack traces\n%s", stack_traces())
        case command_file.LOG_MEMORY:
            memory = psutil.Process().memory_info()
            log.info("memory: resident %d KiB, virtual %d KiB", memory.rss // 1024, memory.vms // 1024)
        case _:
            log.warning("%r is not a command; known: %s", command, ", ".join(command_file.COMMANDS))


def stack_traces() -> str:
    """The stack of every thread and every task."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    parts = []
    for ident, frame in sys._current_frames().items():
        parts.append(f"thread {names.get(ident, ident)}:\n{''.join(traceback.format_stack(frame))}")
    tasks = sorted(asyncio.all_tasks(), key=lambda task: task.get_name())
    for task in tasks[:_MAX_TASKS]:
        frames = [f"  {frame.f_code.co_filename}:{frame.f_lineno} {frame.f_code.co_name}" for frame in task.get_stack()]
        parts.append("\n".join([f"task {task.get_name()}:", *frames]))
    if len(tasks) > _MAX_TASKS:
        parts.append(f"and {len(tasks) - _MAX_TASKS} more tasks")
    return "\n".join(parts)


def _stop_by_signal(number: signal.Signals, stop: asyncio.Event, stop_now: asyncio.Event) -> None:
    if stop.is_set():
        stop_now.set()
    log.info("%s: %s", number.name, "ending at once" if stop_now.is_set() else "draining")
    stop.set()
