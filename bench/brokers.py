"""A system for the duration of one measurement, with default settings unless those would lose messages."""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from crescendo.processes.die_with_parent import die_with_parent
from crescendo.systems.instance import RunningInstance, start
from crescendo.systems.registry import system_of

SETTINGS: dict[str, dict[str, int]] = {"mosquitto": {"queued": 0, "inflight": 0}}
"""By default Mosquitto queues 1,000 messages per subscriber and drops the rest."""


@contextmanager
def broker(kind: str, queues: tuple[str, ...] = ()) -> Iterator[RunningInstance]:
    """Start it, and remove every trace of it at the end. Raises ConfigError if it is not installed."""
    system = system_of(kind)
    scratch = Path(tempfile.mkdtemp(prefix="crescendo-bench-"))
    try:
        settings: dict[str, Any] = dict(SETTINGS.get(kind, {}))
        if "queues" in system.declares:
            settings["queues"] = list(queues)
        instance = start(system, settings, directory=scratch / kind, on_fork=die_with_parent())
        try:
            yield instance
        finally:
            instance.stop()
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
