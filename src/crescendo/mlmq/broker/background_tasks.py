"""What if a background task of a broker ends?

It is started again, after a pause that grows, and logged; until it runs again the health page says so. None of them may
end silently: a broker whose polls or checks have stopped looks healthy and is not. Knows nothing of what they do.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable

log = logging.getLogger(__name__)

_FIRST_PAUSE_S = 0.5
_LONGEST_PAUSE_S = 10.0
_RECOVERED_AFTER_S = 60.0


class BackgroundTasks:
    """Tasks that run until `close`."""

    def __init__(self) -> None:
        self._tasks: list[asyncio.Task[None]] = []
        self._down: dict[str, int] = {}
        self.restarts = 0

    @property
    def down(self) -> list[str]:
        """The tasks that have failed and do not run now."""
        return sorted(self._down)

    def start(self, name: str, work: Callable[[], Awaitable[None]]) -> None:
        """Run `work`, which should never return."""
        self._tasks.append(asyncio.get_running_loop().create_task(self._keep_running(name, work), name=name))

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _keep_running(self, name: str, work: Callable[[], Awaitable[None]]) -> None:
        loop = asyncio.get_running_loop()
        pause_s = _FIRST_PAUSE_S
        while True:
            started_s = loop.time()
            try:
                await work()
                log.error("%s ended; it is started again", name)
            except Exception:
                log.exception("%s failed; it is started again", name)
            if loop.time() - started_s > _RECOVERED_AFTER_S:
                pause_s = _FIRST_PAUSE_S
            self.restarts += 1
            self._down[name] = self._down.get(name, 0) + 1
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
            self._down[name] -= 1
            if not self._down[name]:
                del self._down[name]
