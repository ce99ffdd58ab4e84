"""How is a running broker told to stop, or to say how it is?

By SIGTERM or SIGINT, or by a word in the command file. Both ways to stop drain first: what was taken is answered, then
the broker ends. A second signal does not wait. Puts nothing together and serves nothing.
"""

import asyncio
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
_MAX_TASKS = 200  # in a stack trace: a broker may have thousands of them, and the first ones tell


async def supervise(
    settings: BrokerSettings,
    database_url: str,
    *,
    announce: Callable[[Broker], None],
    is_database_alive: Callable[[], bool] = lambda: True,
) -> bool:
    """Serve until told to stop. False: something that was taken could not be finished in time.

    `is_database_alive` is asked now and then when the database is ours to watch.
    """
    stop, hurry = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, _stop_by_signal, number, stop, hurry)
    # Before anybody is told that we serve: what is written from then on counts.
    commands = CommandFile(Path(settings.command_file)) if settings.command_file else None
    broker = Broker(settings, database_url)
    starting = loop.create_task(broker.start())
    stopping = loop.create_task(stop.wait())
    watching: asyncio.Task[None] | None = None
    try:
        await asyncio.wait({starting, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if not starting.done():  # told to stop while the database was awaited
            return True
        starting.result()
        announce(broker)
        watching = loop.create_task(_watch(commands, settings.command_poll / 1e9, stop, is_database_alive))
        await asyncio.wait({watching, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if watching.done():
            watching.result()
        return await _drain(broker, hurry)
    finally:
        tasks = [task for task in (starting, stopping, watching) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await broker.close()


async def _drain(broker: Broker, hurry: asyncio.Event) -> bool:
    loop = asyncio.get_running_loop()
    draining, hurrying = loop.create_task(broker.drain()), loop.create_task(hurry.wait())
    await asyncio.wait({draining, hurrying}, return_when=asyncio.FIRST_COMPLETED)
    drained = draining.done() and draining.result()
    for task in (draining, hurrying):
        task.cancel()
    await asyncio.gather(draining, hurrying, return_exceptions=True)
    if not drained:
        log.warning("ended before everything was answered")
    return drained


async def _watch(
    commands: CommandFile | None, poll_s: float, stop: asyncio.Event, is_database_alive: Callable[[], bool]
) -> None:
    while True:
        await asyncio.sleep(poll_s if commands else _WATCH_S)
        if not is_database_alive():
            raise LostError("the embedded PostgreSQL has ended; start the broker again and it recovers its data")
        word = commands.look() if commands else None
        if word is not None:
            obey(word, stop)


def obey(word: str, stop: asyncio.Event) -> None:
    """Carry out one command. A word that is none is logged, and nothing else happens."""
    match word:
        case command_file.SHUTDOWN:
            log.info("shutdown: told by the command file")
            stop.set()
        case command_file.LOG_STACK_TRACE:
            log.info("stack traces\n%s", stack_traces())
        case command_file.LOG_MEMORY:
            memory = psutil.Process().memory_info()
            log.info("memory: resident %d KiB, virtual %d KiB", memory.rss // 1024, memory.vms // 1024)
        case _:
            log.warning("%r is no command; known: %s", word, ", ".join(command_file.COMMANDS))


def stack_traces() -> str:
    """Where every thread and every task is now."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    parts = []
    for ident, frame in sys._current_frames().items():
        parts.append(f"thread {names.get(ident, ident)}:\n{''.join(traceback.format_stack(frame))}")
    tasks = sorted(asyncio.all_tasks(), key=lambda task: task.get_name())
    for task in tasks[:_MAX_TASKS]:
        frames = [f"  {frame.f_code.co_filename}:{frame.f_lineno} {frame.f_code.co_name}" for frame in task.get_stack()]
        parts.append("\n".join([f"task {task.get_name()}:", *frames]))
    if len(tasks) > _MAX_TASKS:
        parts.append(f"and {len(tasks) - _MAX_TASKS} tasks more")
    return "\n".join(parts)


def _stop_by_signal(number: signal.Signals, stop: asyncio.Event, hurry: asyncio.Event) -> None:
    if stop.is_set():
        hurry.set()
    log.info("%s: %s", number.name, "ending at once" if hurry.is_set() else "draining")
    stop.set()
