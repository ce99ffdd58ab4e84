"""How is a performance log written in the format of the original MLMQ?

A first line describes the writer; then `duration;epoch_ms;action;context` for every action that ended. Lines are kept
in memory and written in batches, so that logging an action costs no system call. Measures nothing itself: the caller
reads the clocks.
"""

import time
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

from crescendo.model.errors import ConfigError

CLIENT_ROUND_TRIP = "CSndReq"
BROKER_TOTAL = "BTotReqResp"
BROKER_RECEIVE = "BRcvReq"
BROKER_PROCESS = "BProcReq"
BROKER_DATABASE = "BDb"
BROKER_SEND = "BSndResp"
# Not in the original, which never measured them: waiting for a worker, for a connection, and for a message.
BROKER_QUEUE = "BQueReq"
BROKER_POOL = "BPoolDb"
BROKER_WAIT = "BWaitMsg"

Unit = Literal["ms", "us"]
_NS_PER = {"ms": 1_000_000, "us": 1_000}
_FLUSH_LINES = 2000
_FLUSH_NS = 10**9


class PerformanceLog:
    """One log file. A disk failure ends the log, not the broker: the first failure is kept as a message."""

    def __init__(self, path: Path, description: str, unit: Unit = "ms") -> None:
        self._path = path
        self._divisor = _NS_PER[unit]
        # One offset for the whole file: setting the clock must not make timestamps run backwards.
        self._epoch_offset_ns = time.time_ns() - time.monotonic_ns()
        self._lines: list[str] = []
        self._written_ns = time.monotonic_ns()
        self.failure: str | None = None
        unit_note = "" if unit == "ms" else f" DurationUnit[{unit}]"
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = path.open("w", encoding="utf-8")
            self._file.write(f"{' '.join(description.split())}{unit_note}\n")
            self._file.flush()
        except OSError as err:
            raise ConfigError(f"{path}: the performance log cannot be written: {err.strerror}") from err

    def log(self, action: str, duration_ns: int, ended_ns: int, context: str) -> None:
        """One action that ended at `ended_ns` of the monotonic clock."""
        epoch_ms = (ended_ns + self._epoch_offset_ns) // 1_000_000
        self._lines.append(f"{max(duration_ns, 0) // self._divisor};{epoch_ms};{action};{context}\n")
        if len(self._lines) >= _FLUSH_LINES or ended_ns - self._written_ns > _FLUSH_NS:
            self._written_ns = ended_ns
            self.flush()

    def flush(self) -> None:
        if self._lines and self.failure is None:
            try:
                self._file.write("".join(self._lines))
                self._file.flush()
            except OSError as err:
                self.failure = f"{self._path}: the performance log stopped: {err.strerror}"
        self._lines.clear()

    def close(self) -> None:
        self.flush()
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, err: BaseException | None, tb: TracebackType | None) -> None:
        self.close()
