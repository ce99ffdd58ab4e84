"""What does every system under test have in common?

It is started with settings, serves at a URL, and is stopped so that nothing of it remains.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, Protocol

OnFork = Callable[[], None]


class Instance(Protocol):
    """A running system."""

    @property
    def url(self) -> str: ...

    @property
    def facts(self) -> dict[str, Any]:
        """What was started: kind, version, pid, settings. Goes into the manifest; holds no secrets."""
        ...

    def stop(self) -> None:
        """End it; safe to call twice."""
        ...


class Kind(NamedTuple):
    """A kind of system that can be started."""

    summary: str
    start: Callable[[dict[str, Any], Path, OnFork | None], Instance]
