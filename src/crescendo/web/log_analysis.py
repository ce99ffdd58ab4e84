"""How does the browser use the analyzer of performance logs?

It starts `crescendo logs` itself, with the fields of the form as its options, so both have the same checks and the same
messages; the process has a limit of time and dies with the server. One at a time: each starts a JVM.
"""

import asyncio
import hashlib
import sys
from pathlib import Path
from typing import Literal

import msgspec
from pydantic import BaseModel, ConfigDict, Field

from crescendo.model.errors import ConfigError, LostError
from crescendo.processes.child import end_child, launch_child
from crescendo.processes.die_with_parent import die_with_parent
from crescendo.web.web_directory import child_of

TIMEOUT_S = 300.0
KEPT_RESULTS = 100
_POLL_S = 0.2
_GRACE_S = 3.0
MEDIA = {"csv": "text/csv", "txt": "text/plain", "png": "image/png", "eps": "application/postscript"}


class LogForm(BaseModel):
    """The options of the analyzer; without a type it lists the actions in the logs."""

    model_config = ConfigDict(extra="forbid")

    types: list[str] = Field(default_factory=list, max_length=20)
    window: str = Field(default="1s", max_length=20)
    trim: str = Field(default="0s", max_length=20)
    show: str = Field(default="response", max_length=20)
    centre: str = Field(default="median", max_length=20)
    bars: str = Field(default="percentile", max_length=20)
    format: Literal["csv", "txt", "png", "eps"] = "png"

    @property
    def options(self) -> list[str]:
        given = [f"--type={name}" for name in self.types]
        pairs = {"window": self.window, "trim": self.trim, "show": self.show, "centre": self.centre, "bars": self.bars}
        return [*given, *(f"--{name}={value}" for name, value in pairs.items())]


class LogAnalyzer:
    """Analyses logs of runs, one after another."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._free = asyncio.Semaphore(1)

    async def analyze(self, run_dir: Path, form: LogForm) -> str:
        """The name of the result file. ConfigError with the message of the command line."""
        key = hashlib.sha256(msgspec.json.encode([run_dir.name, form.model_dump()])).hexdigest()[:24]
        suffix = form.format if form.types else "txt"
        result = self._folder / f"{key}.{suffix}"
        if result.exists():
            return result.name
        log = self._folder / f"{key}.log"
        part = self._folder / f"{key}.part"
        command = [sys.executable, "-m", "crescendo.cli.main", "logs", str(run_dir / "logs"), *form.options]
        command += [f"--format={form.format}"] if form.types else []
        async with self._free:
            log.unlink(missing_ok=True)
            code = await _finished([*command, f"--out={part}"], log)
        text = log.read_text(errors="replace") if log.exists() else ""
        log.unlink(missing_ok=True)
        if code is None:
            raise LostError(f"the analysis took longer than {TIMEOUT_S:.0f} s; choose fewer types")
        if code != 0:
            lines = [line.removeprefix("crescendo: ") for line in text.splitlines() if line.startswith("crescendo: ")]
            raise ConfigError(lines[-1] if lines else f"the analyzer ended with code {code}")
        part.replace(result)
        self._drop_old_results()
        return result.name

    def _drop_old_results(self) -> None:
        """They can be computed again, and every changed field of the form makes another one."""
        results = [path for path in self._folder.iterdir() if path.suffix.removeprefix(".") in MEDIA]
        for path in sorted(results, key=lambda path: path.stat().st_mtime_ns)[:-KEPT_RESULTS]:
            path.unlink()

    def result(self, name: str) -> Path:
        path = child_of(self._folder, name, "analysis")
        if path.suffix.removeprefix(".") not in MEDIA or not path.is_file():
            raise ConfigError("this analysis is gone; ask for it again")
        return path


async def _finished(command: list[str], log: Path) -> int | None:
    """The exit code; None if it was ended because it took too long."""
    child = launch_child(command, on_fork=die_with_parent(), log=log)  # from the main thread, where the loop runs
    try:
        for _ in range(int(TIMEOUT_S / _POLL_S)):
            if (code := child.poll()) is not None:
                return code
            await asyncio.sleep(_POLL_S)
        return None
    finally:
        if child.poll() is None:
            await asyncio.get_running_loop().run_in_executor(None, end_child, child, _GRACE_S)
