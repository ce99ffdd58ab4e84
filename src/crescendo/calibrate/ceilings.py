"""How is a ceiling measured?

A process with a null end and a process of the load generator, several short turns on one pair, the median kept. One
pair at a time: two would take the cores from each other. What one side counts must agree with what the other one says.
"""

import contextlib
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator

import msgspec

from crescendo.calibrate import null_process, trial
from crescendo.calibrate.engine import Effort
from crescendo.calibrate.null_process import PATIENCE_S, Taken
from crescendo.calibrate.null_servers import ENDS
from crescendo.calibrate.store import RECEIVER, SENDER, Ceiling
from crescendo.model.errors import ConfigError, LostError
from crescendo.model.workload import STAMP_BYTES

SIZES = (256, 1024, 16 * 1024)
TURNS = 3
SECONDS = 1.0
MAX_SECONDS = 10.0
"""A null end gives no signs of life; clients begin to doubt it after twice this time."""

MAX_SIZE = 60_000
"""Larger messages do not fit into one frame of AMQP 1.0, and what limits them is copying, not messages."""

OnFork = Callable[[], None] | None


def check(protocols: list[str], sizes: list[int], seconds: float) -> None:
    """Refuse what cannot be measured."""
    for protocol in protocols:
        if protocol not in ENDS:
            raise ConfigError(f"no protocol is called {protocol!r}; choose from {', '.join(ENDS)}")
    for size in sizes:
        if not STAMP_BYTES <= size <= MAX_SIZE:
            raise ConfigError(f"--size {size}: a size for calibration is {STAMP_BYTES} to {MAX_SIZE:,} bytes")
    if not 0 < seconds <= MAX_SECONDS:
        raise ConfigError(f"--seconds {seconds:g}: a turn takes more than 0 and at most {MAX_SECONDS:g} seconds")


def measure(protocol: str, role: str, size: int, *, seconds: float, turns: int, on_fork: OnFork) -> Ceiling:
    """The ceiling of one protocol, role and size on this machine, now."""
    efforts, taken = _take_turns(protocol, role, size, seconds, turns, on_fork)
    for effort, other in zip(efforts, taken, strict=True):
        _compare(effort, other, role, size)
    rates = [effort.rate for effort in efforts]
    return Ceiling(protocol, role, size, statistics.median(rates), min(rates), max(rates), len(rates))


def _take_turns(
    protocol: str, role: str, size: int, seconds: float, turns: int, on_fork: OnFork
) -> tuple[list[Effort], list[Taken]]:
    other = null_process.SINK if role == SENDER else null_process.SOURCE
    with _process(on_fork, null_process.__name__, protocol, other, size, turns) as end:
        port = _line(end)
        with _process(on_fork, trial.__name__, protocol, role, port.strip(), size, seconds, turns) as engine:
            said, _ = engine.communicate(timeout=turns * (seconds + 2 * PATIENCE_S))
        if engine.returncode:
            raise LostError(f"the {role} of {protocol} did not finish its turns; what it said stands above")
        counted, _ = end.communicate(timeout=PATIENCE_S)
    efforts = [msgspec.json.decode(line, type=Effort) for line in said.splitlines()]
    taken = [msgspec.json.decode(line, type=Taken) for line in counted.splitlines()]
    if len(efforts) != turns or len(taken) != turns:
        raise LostError(f"the null end of the {role} of {protocol} did not finish; what it said stands above")
    return efforts, taken


@contextlib.contextmanager
def _process(on_fork: OnFork, module: str, *words: object) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-m", module, *map(str, words)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=on_fork,  # noqa: PLW1509 - one prctl, from the main thread
    )
    try:
        yield process
    except subprocess.TimeoutExpired:
        raise LostError(f"{module} did not end in time") from None
    finally:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


def _line(process: subprocess.Popen[str]) -> str:
    line = process.stdout.readline() if process.stdout is not None else ""
    if not line:
        raise LostError("a null end did not start; what it said stands above")
    return line


def _compare(effort: Effort, other: Taken, role: str, size: int) -> None:
    """Both ends must tell the same story, or the rate is a story too."""
    if not effort.messages or not effort.seconds:
        raise LostError(f"nothing passed between the {role} and its null end")
    if role == SENDER and other.octets < effort.messages * size:
        raise LostError(f"{effort.messages:,} messages of {size} bytes were sent, {other.octets:,} bytes arrived")
    if role == RECEIVER and other.messages < effort.messages:
        raise LostError(f"{effort.messages:,} messages were received, {other.messages:,} were sent")
